// The page: receives messages, from the server or from the document itself, and shows the runs.

const frozen = document.getElementById('data').textContent.trim();
const live = frozen === '';
const token = new URLSearchParams(location.search).get('token') || '';
const at = (id) => document.getElementById(id);

const page = {
  all: [],         // of the server's list
  shown: [],       // ids
  focus: null,     // the run of which everything is shown
  link: live ? {text: 'connecting…', lost: false} : null,
  dirty: new Set(),
  parts: new Map(),  // of shown runs, the steps of view.part in full
};

const shownRuns = () => page.shown.filter((id) => runs.has(id)).map((id) => runs.get(id));
const focusRun = () => runs.get(page.focus) || shownRuns()[0] || null;
const colourOfRun = (id) => palette[Math.max(page.shown.indexOf(id), 0) % palette.length];

// Charts.

const charts = [
  {title: 'Loss', unit: '', size: 'wide', legend: true, smooth: true, column: 'loss', validation: true, robust: true},
  {title: 'Learning rate', unit: '', size: 'third', column: 'lr', fromZero: true, colour: 'blue'},
  {title: 'Gradient norm', unit: 'before clipping', size: 'third', column: 'grad_norm', smooth: true, fromZero: true, colour: 'purple', robust: true},
  {title: 'Throughput', unit: 'tokens/s', size: 'third', column: 'tokens_per_s', smooth: true, fromZero: true, colour: 'teal'},
  {title: 'FLOPs utilization', unit: '% of the machine’s peak', size: 'half', column: 'tokens_per_s', smooth: true, fromZero: true, colour: 'rose',
   factor: (run) => 100 * utilizationOfToken(run)},
  {title: 'Step time', unit: 'ms', size: 'half', smooth: true, fromZero: true, robust: true, colour: 'blue', column: 'step_ms',
   columns: [['compute_ms', 'computing', 'blue'], ['communication_ms', 'communication under way', 'orange'], ['exposed_ms', 'waiting for it', 'rose']]},
  {title: 'Loss scale', unit: '', size: 'half', column: 'loss_scale', colour: 'orange'},
  {title: 'Staleness', unit: 'updates', size: 'half', column: 'staleness', colour: 'orange', fromZero: true, always: false},
].map((plan) => ({plan, chart: new Chart(plan.title, plan.unit, plan.size, plan)}));

function curvesOf(plan, shown) {
  const several = shown.length > 1;
  return shown.flatMap((run) => {
    const part = page.parts.get(run.id);
    const {steps, validations} = part || run;
    const factor = plan.factor ? plan.factor(run) : 1;
    if (factor === 0) return [];
    if (plan.title === 'Staleness' && !(run.status && run.status.staleness > 0)) return [];
    const colour = several ? colourOfRun(run.id) : plan.colour || 'blue';
    if (!several && plan.columns && steps.columns.has('compute_ms')) {
      return plan.columns.map(([column, name, one]) => ({name, colour: one, series: steps, column, smooth: plan.smooth}));
    }
    const name = several ? run.id : plan.validation ? 'training' : plan.unit || plan.title;
    // The colours of several runs are those of the picker.
    const curves = [{name, colour, series: steps, column: plan.column, factor, smooth: plan.smooth, quiet: several,
      unlisted: several && !plan.legend}];
    if (plan.validation) {
      curves.push({name: several ? `${run.id}, validation` : 'validation', colour: several ? colour : 'orange',
        series: validations, column: 'val_loss', dots: true, dashed: several, unlisted: several});
    }
    return curves;
  });
}

// Where a run was continued, and by how many ranks.
function marksOf(run) {
  const {steps, begins} = run;
  return begins.slice(1).map((begin, i) => {
    const index = lowerBound(steps.step, begin.first_step - 1);
    if (index >= steps.step.length) return null;
    const before = begins[i].workers;
    const ranks = begin.workers === before ? '' : `, ${before} → ${begin.workers} ranks`;
    return {text: `resumed${ranks}`, places: {step: begin.first_step - 0.5, tokens: steps.tokens[index], seconds: steps.seconds[index]}};
  }).filter((mark) => mark !== null);
}

let drawing = false;
function drawCharts() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    for (const {chart} of charts) chart.draw();
  });
}

function showCharts() {
  const shown = shownRuns();
  const marks = shown.length === 1 ? marksOf(shown[0]) : [];
  for (const {plan, chart} of charts) chart.show(curvesOf(plan, shown), marks);
  const compares = shown.length > 1 && shown.some((run) => run.validations.step.length > 0);
  charts[0].chart.element.querySelector('.unit').textContent = compares ? 'dashed: validation' : '';
  const any = shown.some((run) => run.steps.step.length > 0);
  at('controls').hidden = !any;
  at('charts').hidden = !any;
  drawCharts();
}

// Shows [from, to] of the axis; null: all. A server sends the steps of a part in full.
let asked = 0;
async function showPart(part) {
  view.part = part;
  const mine = ++asked;
  at('all').hidden = part === null;
  if (part === null) page.parts.clear();
  change('charts');
  if (part === null || !live) return;
  const points = Math.min(Math.max(charts[0].chart.plot.clientWidth, 300), 3000);
  const width = part[1] - part[0];
  await Promise.all(shownRuns().map(async (run) => {
    if (run.steps.rows === 1) return;  // it is here in full
    const query = new URLSearchParams({token, run: run.id, axis: view.axis, from: part[0] - width * 0.01,
      to: part[1] + width * 0.01, points});
    const answer = await fetch(`api/part?${query}`);
    const given = answer.ok ? await answer.json() : null;
    if (mine !== asked || !given) return;
    const one = {steps: emptySeries(), validations: emptySeries()};
    applySeries(one.steps, given.steps);
    applySeries(one.validations, given.validations);
    page.parts.set(run.id, one);
  })).catch(() => {});
  if (mine === asked) change('charts');
}

function makeControls() {
  const choice = (name, values, current, choose) => {
    const buttons = values.map(([value, text]) => make('button', {type: 'button', 'aria-pressed': String(value === current), 'data-axis': value,
      onclick: () => {
        for (const button of buttons) button.setAttribute('aria-pressed', String(button.dataset.axis === value));
        choose(value);
      }}, text));
    return make('span', {class: 'choice'}, name, make('div', {}, buttons));
  };
  const slider = make('input', {type: 'range', min: '0', max: '0.99', step: '0.01', value: String(view.smoothing), id: 'smoothing',
    oninput: () => { view.smoothing = Number(slider.value); drawCharts(); }});
  const logarithmic = make('input', {type: 'checkbox', id: 'logarithmic',
    onchange: () => { view.logarithmic = logarithmic.checked; drawCharts(); }});
  at('controls').replaceChildren(
      choice('over', Object.entries(axisNames), view.axis, (axis) => { view.axis = axis; showPart(null); }),
      make('label', {}, 'smoothing', slider), make('label', {}, logarithmic, 'logarithmic'),
      make('span', {}, 'drag to zoom'),
      make('button', {class: 'plain', type: 'button', id: 'all', hidden: '', onclick: () => showPart(null)}, 'show all'));
}

// Everything else.

const sectionsInOrder = [
  ['ranks', ranksOf], ['timeline', timelineOf], ['time', timeOf], ['memory', memoryOf], ['samples', samplesOf],
  ['facts', factsOf], ['settings', () => settingsSection(shownRuns())], ['log', logOf],
];
const holders = new Map();

function showPicker() {
  const picker = at('picker');
  picker.hidden = page.all.length < 2;
  picker.replaceChildren(...page.all.map((one) => {
    const shown = page.shown.includes(one.run);
    const progress = one.steps > 0 ? `${grouped(one.step)} / ${grouped(one.steps)}` : grouped(one.step);
    return make('button', {type: 'button', 'aria-pressed': String(shown), 'data-run': one.run,
      class: focusRun() && focusRun().id === one.run && page.shown.length > 1 ? 'focus' : '',
      title: `${one.model || one.run}: ${stateWords[one.state] || one.state}`, onclick: (event) => pick(one.run, event)},
      make('i', {colour: shown ? colourOf(colourOfRun(one.run)) : false}), make('b', {}, one.run),
      make('span', {}, one.state === 'running' ? progress : stateWords[one.state] || one.state));
  }));
}

// The first click shows a run, the next one its details, and the one after that hides it.
function pick(id) {
  const shown = page.shown.includes(id);
  if (!shown) {
    page.shown.push(id);
    page.focus = id;
    connect();
  } else if (page.shown.length > 1 && page.focus !== id) {
    page.focus = id;
  } else if (page.shown.length > 1) {
    page.shown = page.shown.filter((one) => one !== id);
    page.focus = page.shown[0];
    page.parts.delete(id);
    connect();
  }
  changeAll();
}

function show() {
  const run = focusRun();
  if (page.dirty.has('picker') || page.dirty.has('head')) showPicker();
  if (run && page.dirty.has('head')) {
    at('head').replaceChildren(...headOf(run, live, page.link));
    const state = run.status ? stateWords[run.status.state] : '';
    document.title = `${(run.facts && (run.facts.name || run.facts.model)) || run.id} (${state})`;
  }
  if (!run && page.link) at('head').replaceChildren(make('p', {class: page.link.lost ? 'failure' : 'when'}, page.link.text));
  if (run && page.dirty.has('tiles')) at('tiles').replaceChildren(...tilesOf(run));
  at('tiles').hidden = !run || !run.status;
  if (page.dirty.has('charts')) showCharts();
  for (const [name, parts] of sectionsInOrder) {
    if (!run || !page.dirty.has(name)) continue;
    const old = holders.get(name) || [];
    const open = old.some((element) => element.open);
    const now = parts(run);
    for (const element of now) if (open) element.open = true;
    for (const element of old) element.remove();
    holders.set(name, now);
    const later = sectionsInOrder.slice(sectionsInOrder.findIndex(([one]) => one === name) + 1)
        .flatMap(([one]) => holders.get(one) || [])[0] || null;
    for (const element of now) at('sections').insertBefore(element, later);
  }
  page.dirty.clear();
}

let showing = false;
function change(...names) {
  for (const name of names) page.dirty.add(name);
  if (showing) return;
  showing = true;
  setTimeout(() => { showing = false; show(); }, 0);
}
const changeAll = () => change('head', 'tiles', 'charts', 'picker', ...sectionsInOrder.map(([name]) => name));

function receive(message) {
  if (message.type === 'runs') {
    page.all = message.all;
    const before = page.shown.join('\n');
    page.shown = message.shown;
    if (!page.shown.includes(page.focus)) page.focus = page.shown[0] || null;
    return before === page.shown.join('\n') ? change('picker') : changeAll();
  }
  if (message.type === 'end') return lose('The server has ended; what is here is what it sent last.');
  if (!live && !page.shown.includes(message.run)) page.shown.push(message.run);
  const names = applyMessage(message);
  const focused = focusRun() && focusRun().id === message.run;
  change(...(focused ? names : names.filter((name) => name === 'charts' || name === 'settings')));
}

let source = null;
function lose(text) {
  page.link = {text, lost: true};
  if (source) source.close();
  change('head');
}

function connect() {
  if (!live) return;
  if (source) source.close();
  const query = new URLSearchParams({token});
  for (const id of page.shown) query.append('run', id);
  source = new EventSource(`api/news?${query}`);
  source.onopen = () => { page.link = {text: 'live', lost: false}; change('head'); };
  source.onmessage = (event) => receive(JSON.parse(event.data));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) return lose('The server does not answer: it has ended, or its link is another one now.');
    page.link = {text: 'disconnected; trying again…', lost: true};
    change('head');
  };
}

makeControls();
at('charts').replaceChildren(...charts.map(({chart}) => chart.element));
new ResizeObserver(drawCharts).observe(at('charts'));
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', changeAll);
if (live) {
  connect();
} else {
  for (const message of JSON.parse(frozen)) receive(message);
  page.focus = page.shown[0] || null;
  changeAll();
}
show();
