// What the page shows beside its charts: functions from a run to elements.

const stateWords = {
  waiting: 'not begun', running: 'running', finished: 'finished', interrupted: 'interrupted',
  failed: 'failed', gone: 'killed', unknown: 'silent',
};

function headOf(run, live, link) {
  const {facts, status, begins} = run;
  const state = status ? status.state : 'waiting';
  const title = (facts && (facts.name || facts.model)) || run.id;
  const head = [make('div', {class: 'title'}, make('h1', {}, title),
      make('span', {class: `state ${state}`, id: 'state'}, stateWords[state] || state),
      link ? make('span', {class: `link ${link.lost ? 'lost' : ''}`, id: 'link'}, link.text) : null)];
  const parts = [run.id];
  if (begins.length > 0) parts.push(`began ${moment(begins[0].time)}`);
  if (begins.length > 1) parts.push(`continued ${moment(begins[begins.length - 1].time)}`);
  if (status && status.ended) parts.push(`ended ${moment(status.ended)}`);
  if (!live && state === 'running') parts.push(`as of ${moment(status.time)}`);
  head.push(make('p', {class: 'when'}, parts.join(' · ')));
  if (status && status.message) head.push(make('p', {class: 'failure'}, status.message));
  if (state === 'gone') {
    head.push(make('p', {class: 'failure'}, 'The process of this run ended without a word; the same command continues from the last checkpoint.'));
  }
  if (status && facts && facts.steps > 0) head.push(progressOf(run));
  return head;
}

function progressOf(run) {
  const {facts, status} = run;
  const done = status.step || 0;
  const share = Math.min(done / facts.steps, 1);
  const left = [];
  if (status.state === 'running' && status.seconds_left > 0) left.push(`${duration(status.seconds_left)} left`);
  if (status.reading) left.push('reading…');
  if (status.skipped > 0) left.push(`${grouped(status.skipped)} skipped`);
  return make('div', {class: 'progress'},
      make('span', {id: 'progress', 'data-value': done}, `step ${grouped(done)} of ${grouped(facts.steps)} (${(100 * share).toFixed(share < 1 ? 1 : 0)}%)`),
      make('span', {class: 'right'}, left.join(' · ')),
      make('div', {class: 'track'}, make('div', {class: 'done', width: `${100 * share}%`})));
}

function tile(name, value, more, exact) {
  return make('div', {class: 'tile', 'data-tile': name, 'data-value': isNumber(exact) ? String(exact) : false},
      make('dt', {}, name), make('dd', {}, value), make('p', {}, more));
}

function tilesOf(run) {
  const {facts, status} = run;
  if (!status) return [];
  const ran = status.rows > 0;
  const best = status.best_validation, last = status.validation;
  const seconds = Object.values(status.seconds).reduce((sum, one) => sum + one, 0);
  const tiles = [
    tile('Loss', ran ? loss(status.loss) : 'none', ran ? `after step ${grouped(status.step)}` : 'no step was done', status.loss),
    tile('Validation loss', last ? loss(last.loss) : 'none',
         best ? `best ${loss(best.loss)} after step ${grouped(best.step)}` : 'not taken so far', last && last.loss),
    tile('Throughput', status.tokens_per_second > 0 ? `${grouped(status.tokens_per_second)} tokens/s` : 'none',
         status.seconds_per_step > 0 ? `${brief(status.seconds_per_step)} a step` : 'no step was done', status.tokens_per_second),
    tile('Model FLOP/s', status.flops_per_second > 0 ? scaled(status.flops_per_second, 'FLOP/s') : 'unknown',
         status.utilization > 0 ? `${(100 * status.utilization).toFixed(0)}% of the machine’s ${scaled(facts.peak_flops, 'FLOP/s')}` : 'peak not measured',
         status.utilization),
    tile('Gradient norm', ran ? short(status.grad_norm) : 'none', ran ? `learning rate ${short(status.lr)}` : '', status.grad_norm),
    tile('Tokens', words(status.tokens || 0), facts && facts.step_tokens ? `${grouped(facts.step_tokens)} a step` : '', status.tokens),
    tile('Memory', status.memory_bytes > 0 ? bytes(status.memory_bytes) : 'unknown',
         facts && facts.memory_bytes ? `${bytes(facts.memory_bytes)} planned` : '', status.memory_bytes),
    tile('Time', duration(seconds), seconds > 0 ? `${(100 * status.seconds.computing / seconds).toFixed(0)}% computing` : '', seconds),
  ];
  return tiles;
}

function factsOf(run) {
  const {facts, status, begins} = run;
  if (!facts) return [];
  const workers = facts.workers > 1 ? `${facts.workers}, ${facts.strategy}` : '';
  const batch = facts.batch > 0 ? `${grouped(facts.batch)} sequences a step, ${grouped(facts.micro_batch)} at once` : '';
  const resumed = begins.length > 1 ? `continued ${begins.length - 1} times, last with step ${grouped(begins[begins.length - 1].first_step)}` : '';
  const rows = [['Name', facts.name], ['Model', facts.model], ['Parameters', `${grouped(facts.parameters)} in ${facts.precision}`],
    ['Hardware', facts.hardware], ['Workers', workers], ['Data', facts.data], ['Batch', batch],
    ['Resumed', resumed], ['Folder', run.folder],
    ['Lines', status && status.unreadable > 0 ? `${status.unreadable} unreadable lines of metrics.jsonl are left out` : '']];
  return [make('section', {class: 'card wide'}, make('dl', {class: 'facts'},
      rows.filter(([, value]) => value).map(([name, value]) => [make('dt', {}, name), make('dd', {}, value)])))];
}

function stackOf(parts) {
  return make('div', {class: 'stack'}, parts.filter((part) => part.size > 0).map((part) =>
      make('i', {class: part.style, flex: `${part.size} 1 0`, title: `${part.name}: ${part.text}`})));
}

function tableOf(parts, all) {
  return parts.map((part) => make('tr', {}, make('td', {class: 'name'}, make('i', {class: `swatch ${part.style}`}), part.name,
      part.more ? make('small', {}, part.more) : null),
      make('td', {class: 'number', title: part.title || false}, part.text),
      make('td', {class: 'number share'}, all > 0 ? percent(part.size / all) : '')));
}

const beside = (name, value) => make('tr', {class: 'beside'}, make('td', {class: 'name'}, name),
    make('td', {class: 'number', colspan: 2}, value));

function timeOf(run) {
  const {status} = run;
  if (!status || status.rows === 0) return [];
  const styles = {computing: 'blue', 'waiting for ranks': 'rose', 'waiting for data': 'orange',
    checkpoints: 'purple', validation: 'teal', other: 'grey'};
  const parts = Object.entries(status.seconds)
      .filter(([name]) => name !== 'waiting for ranks' || status.shared_steps > 0)
      .map(([name, size]) => ({name, size, style: styles[name], text: duration(size)}));
  const all = parts.reduce((sum, part) => sum + part.size, 0);
  const more = [];
  if (status.background_seconds > 0) more.push(beside('checkpoints, beside steps', duration(status.background_seconds)));
  if (status.shared_steps > 0) {
    more.push(beside('communication, mean over ranks', duration(status.communication_seconds)));
    more.push(beside('exposed of it', duration(status.exposed_seconds)));
    more.push(beside('exposed at the rank that waited longest', duration(status.exposed_max_seconds)));
    more.push(beside('sent by all ranks', bytes(status.bytes_sent)));
    if (status.bytes_across > 0) more.push(beside('of that between nodes', bytes(status.bytes_across)));
    if (status.slowest) {
      more.push(beside('most often slowest', `rank ${status.slowest.rank}, ${(100 * status.slowest.steps / status.shared_steps).toFixed(0)}%`));
    }
    if (status.staleness > 0) {
      more.push(beside('staleness', `${(status.staleness / status.shared_steps).toFixed(2)} updates, ${status.staleness_max.toFixed(1)} at most`));
    }
  }
  return [section('half', 'Time', '', stackOf(parts), make('table', {}, tableOf(parts, all),
      make('tr', {class: 'sum'}, make('td', {class: 'name'}, 'all'), make('td', {class: 'number'}, duration(all)), make('td')),
      more))];
}

function ranksOf(run) {
  const {ranks, facts} = run;
  if (!ranks || !Array.isArray(ranks.workers) || ranks.workers.length === 0) return [];
  const plans = facts && facts.memory_of_ranks || [];
  const slow = ranks.straggler ? ranks.straggler.rank : -1;
  const boxes = ranks.workers.map((worker, index) => {
    const rank = index * (ranks.ranks_of_worker || 1);
    const name = ranks.ranks_of_worker > 1 ? `ranks ${rank} to ${rank + ranks.ranks_of_worker - 1}` : `rank ${rank}`;
    if (!worker) return make('div', {class: 'rankbox'}, make('b', {}, name), make('div', {}, 'not known'));
    const waits = Math.max(worker.step_ms - worker.compute_ms - worker.exposed_ms, 0);
    const parts = [{name: 'computing', size: worker.compute_ms, style: 'blue', text: brief(worker.compute_ms / 1000)},
      {name: 'exposed communication', size: worker.exposed_ms, style: 'rose', text: brief(worker.exposed_ms / 1000)},
      {name: 'other', size: waits, style: 'grey', text: brief(waits / 1000)}];
    const plan = plans[rank];
    const memory = plan ? memoryParts(plan) : [];
    const planned = memory.reduce((sum, part) => sum + part.size, 0);
    return make('div', {class: `rankbox ${index === slow ? 'slow' : ''}`, 'data-rank': rank},
        make('div', {}, make('b', {}, name), index === slow ? make('em', {}, `${ranks.straggler.times.toFixed(1)}× slower`) : null),
        stackOf(parts), make('div', {}, `computing ${brief(worker.compute_ms / 1000)}`),
        make('div', {}, `communication ${brief(worker.communication_ms / 1000)}, ${brief(worker.exposed_ms / 1000)} exposed`),
        worker.staleness > 0 ? make('div', {}, `${worker.staleness.toFixed(1)} updates stale`) : null,
        memory.length > 0 ? [stackOf(memory), make('div', {}, `${bytes(planned)} planned`)] : null);
  });
  return [section('wide', 'Ranks', `mean of ${grouped(ranks.steps)} steps up to ${grouped(ranks.step)}`, make('div', {class: 'ranks'}, boxes))];
}

function timelineOf(run) {
  const {timeline} = run;
  if (!timeline) return [];
  const drawn = new DOMParser().parseFromString(timeline.svg, 'text/html').body.firstElementChild;
  const part = section('wide', 'One step', `step ${grouped(timeline.step)}, ${brief(timeline.seconds)}`,
      make('div', {class: 'scroll'}, drawn), timeline.note ? make('p', {class: 'note'}, timeline.note) : null);
  part.firstElementChild.append(make('span', {class: 'legend'}, timeline.colours.map((colour) =>
      make('span', {}, make('i', {class: colour.style}), colour.name))));
  return [part];
}

function samplesOf(run) {
  const {items} = run.samples;
  if (items.length === 0) return [];
  const shown = items.slice(-24).reverse();
  const hidden = run.samples.from + items.length - shown.length;
  return [section('wide', 'Samples', hidden > 0 ? `the last ${shown.length} of ${run.samples.from + items.length}` : 'the last one first',
      shown.map((sample) => make('div', {class: 'sample'}, make('b', {}, `step ${grouped(sample.step)}`), make('pre', {}, sample.text))))];
}

function logText(line) {
  if (line.event === 'begin') {
    const begun = line.first_step > 1 ? `continued with step ${grouped(line.first_step)}` : 'began';
    return `${begun}, ${line.workers > 1 ? `${line.workers} ranks, ${line.strategy}` : 'one rank'}, on ${line.host}`;
  }
  if (line.event === 'end') return `${line.reason} after ${duration(line.seconds)}${line.message ? `: ${line.message}` : ''}`;
  return line.text || '';
}

// Whose line it is: the run's own events are those of rank 0.
const sourceOf = (line) => line.event === 'launcher' ? 'launcher' : line.event !== 'output' ? 'rank 0' :
    isNumber(line.rank) ? `rank ${line.rank}` : 'spares';

let shownSource = 'all';  // or one of them

function logOf(run) {
  const {items} = run.log;
  if (items.length === 0) return [];
  const sources = [...new Set(items.map(sourceOf))].sort((a, b) => a.localeCompare(b, 'en', {numeric: true}));
  const all = !sources.includes(shownSource);
  const lines = items.filter((line) => all || sourceOf(line) === shownSource).reverse();
  const part = section('wide', 'Log', 'the last one first', make('div', {class: 'log'}, lines.map((line) =>
      make('div', {class: line.event === 'end' ? line.reason : line.event},
          make('span', {}, moment(line.time)), make('span', {}, line.event === 'output' ? sourceOf(line) : line.event),
          make('p', {}, logText(line))))));
  if (sources.length > 1) {
    const choice = make('select', {id: 'source', 'aria-label': 'whose lines', onchange: () => { shownSource = choice.value; change('log'); }},
        ['all', ...sources].map((source) => make('option', {value: source, selected: source === (all ? 'all' : shownSource) ? '' : false}, source)));
    part.firstElementChild.append(choice);
  }
  return [part];
}

// All settings of one run; of several, those that differ.
function settingsSection(shown) {
  if (shown.length === 1) {
    const config = shown[0].facts && shown[0].facts.config;
    if (!config) return [];
    return [make('details', {class: 'card wide'}, make('summary', {}, 'Settings'), make('pre', {}, config))];
  }
  const all = shown.map(settingsOf);
  const keys = [...new Set(all.flatMap((settings) => [...settings.keys()]))].filter((key) => {
    const values = new Set(all.map((settings) => settings.get(key)));
    return key !== 'run.dir' && !key.startsWith('live.') && values.size > 1;
  });
  const rows = keys.map((key) => make('tr', {}, make('th', {}, key), all.map((settings) => make('td', {}, settings.get(key) || '–'))));
  const head = make('tr', {}, make('th', {}, ''), shown.map((run) => make('th', {}, run.id)));
  return [section('wide', 'Settings that differ', '', keys.length === 0 ? make('p', {class: 'none'}, 'None.') :
      make('div', {class: 'scroll'}, make('table', {class: 'settings'}, head, rows)))];
}
