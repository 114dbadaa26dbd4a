// The runs, as the messages of the server describe them (live/run_follower.h).

const runs = new Map();  // by id

function runOf(id) {
  if (!runs.has(id)) {
    runs.set(id, {
      id, folder: '', facts: null, begins: [], status: null, ranks: null, timeline: null,
      steps: emptySeries(), validations: emptySeries(),
      samples: {from: 0, items: []}, log: {from: 0, items: []},
    });
  }
  return runs.get(id);
}

// Columns by name, each with what came first and second of the lowest and highest value of a
// bucket, and the mean. Where a bucket is one row all three are the same list.
function emptySeries() {
  return {epoch: -1, rows: 1, step: [], first_step: [], tokens: [], seconds: [], columns: new Map()};
}

function applySeries(series, message) {
  const {from} = message;
  const cut = (list, more) => {
    list.length = from;
    for (const value of more) list.push(value);
  };
  const places = message.step.length;
  series.epoch = message.epoch;
  series.rows = message.rows;
  cut(series.step, message.step);
  cut(series.first_step, message.first_step || message.step);
  cut(series.tokens, message.tokens);
  cut(series.seconds, message.seconds);
  const parts = ['first', 'second', 'mean'];
  for (const name of Object.keys(message.columns)) {
    if (series.columns.has(name) && from > 0) continue;
    const nothing = () => new Array(from).fill(null);
    series.columns.set(name, {first: nothing(), second: nothing(), mean: nothing()});
  }
  if (from === 0) {
    for (const name of [...series.columns.keys()]) {
      if (!(name in message.columns)) series.columns.delete(name);
    }
  }
  for (const [name, column] of series.columns) {
    const given = message.columns[name] || new Array(places).fill(null);
    for (const part of parts) cut(column[part], Array.isArray(given) ? given : given[part]);
  }
}

function applyList(list, from, items) {
  if (from === list.from + list.items.length) {
    list.items.push(...items);
  } else {
    list.from = from;
    list.items = items;
  }
}

// Returns the parts of the page that the message changes.
function applyMessage(message) {
  if (message.type === 'runs' || message.type === 'end') return [];
  const run = runOf(message.run);
  switch (message.type) {
    case 'run':
      run.folder = message.folder;
      run.facts = message.facts;
      run.begins = message.begins;
      return ['head', 'tiles', 'charts', 'facts', 'memory', 'settings', 'ranks'];
    case 'status':
      run.status = message;
      run.heard = Date.now() / 1000;
      return ['head', 'tiles', 'time', 'memory', 'facts'];
    case 'series':
      applySeries(message.table === 'steps' ? run.steps : run.validations, message);
      return ['charts'];
    case 'samples':
      applyList(run.samples, message.from, message.samples);
      return ['samples'];
    case 'log':
      applyList(run.log, message.from, message.lines);
      return ['log'];
    case 'ranks':
      run.ranks = message.ranks;
      return ['ranks'];
    case 'timeline':
      run.timeline = message.svg ? message : null;
      return ['timeline'];
    default:
      return [];
  }
}

// "key = value   # where from" of config.toml, by key.
function settingsOf(run) {
  const settings = new Map();
  const text = run.facts && run.facts.config || '';
  for (const line of text.split('\n')) {
    const match = /^([\w.]+) = (.*?)(?:\s+# .*)?$/.exec(line);
    if (match) settings.set(match[1], match[2]);
  }
  return settings;
}

// Model FLOP/s relative to the machine's peak, for one token per second; 0: not known.
function utilizationOfToken(run) {
  const facts = run.facts;
  if (!facts || !facts.peak_flops || !facts.step_tokens || !facts.step_flops) return 0;
  return facts.step_flops / facts.step_tokens / facts.peak_flops;
}
