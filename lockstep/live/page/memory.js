// The memory plan: its classes at the peak, and how they change over a step.

// The colours of `lockstep explain memory`.
const memoryColours = {parameters: 'blue', gathered: 'blue soft', gradients: 'orange', 'in flight': 'orange soft',
  optimizer: 'purple', activations: 'teal', 'hand-over': 'grey', workspace: 'rose', 'weight inputs': 'rose soft',
  communication: 'purple soft', gaps: 'grey soft'};

// By the name of a class: "activations layer.0 .. layer.3" and "host optimizer" are those of the kind.
function memoryStyle(name) {
  const kind = Object.keys(memoryColours).find((one) => name.replace(/^host /, '').startsWith(one));
  if (!kind) return 'teal soft';
  return name.startsWith('host ') ? `${memoryColours[kind].split(' ')[0]} soft` : memoryColours[kind];
}

function memoryParts(lines) {
  return lines.map((line) => ({name: line.name, size: line.bytes, style: memoryStyle(line.name),
    text: bytes(line.bytes), title: `${grouped(line.bytes)} bytes`,
    more: line.count > 1 ? `${line.count} × ${bytes(line.bytes / line.count)}` : ''}));
}

// Its name is an address, which the page has none of.
const svgNamespace = new DOMParser().parseFromString('<svg></svg>', 'text/html').body.firstElementChild.namespaceURI;

function makeSvg(tag, attributes, ...children) {
  const element = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// The classes as bands on top of each other, a column for each step of the schedule: forward of
// every block, backward of every block, the optimizer. The dashed line is what is allocated.
function memoryOverSteps(memory, allocated) {
  const columns = memory.columns.length;
  const sums = new Array(columns).fill(0);
  const top = Math.max(allocated, ...memory.columns.map((_, i) => memory.bands.reduce((sum, band) => sum + band.bytes[i], 0)));
  const height = 100, y = (value) => height * (1 - value / top);
  const bands = memory.bands.map((band) => {
    const upper = [], lower = [];
    for (let i = 0; i < columns; ++i) {
      lower.unshift(`L${i + 1} ${y(sums[i])} L${i} ${y(sums[i])}`);
      sums[i] += band.bytes[i];
      upper.push(`${i === 0 ? 'M' : 'L'}${i} ${y(sums[i])} L${i + 1} ${y(sums[i])}`);
    }
    return makeSvg('path', {class: `band ${memoryStyle(band.name)}`, d: `${upper.join(' ')} ${lower.join(' ')} Z`,
      'data-band': band.name});
  });
  const limit = makeSvg('line', {x1: 0, x2: columns, y1: y(allocated), y2: y(allocated), class: 'limit'});
  const cursor = makeSvg('line', {x1: 0, x2: 0, y1: 0, y2: height, class: 'cursor', visibility: 'hidden'});
  const picture = makeSvg('svg', {viewBox: `0 0 ${columns} ${height}`, preserveAspectRatio: 'none', role: 'img',
    'aria-label': 'memory over the steps of a training step'}, ...bands, limit, cursor);
  const tip = make('div', {class: 'tip', hidden: ''});
  const plot = make('div', {class: 'memorymap'}, picture, tip);
  const show = (event) => {
    const box = plot.getBoundingClientRect();
    const at = event.clientX - box.left;
    const i = Math.min(Math.max(Math.floor(at / box.width * columns), 0), columns - 1);
    cursor.setAttribute('x1', i + 0.5);
    cursor.setAttribute('x2', i + 0.5);
    cursor.setAttribute('visibility', 'visible');
    const rows = memory.bands.filter((band) => band.bytes[i] > 0).reverse();
    tip.replaceChildren(make('b', {'data-bytes': sums[i]}, `${memory.columns[i]}: ${bytes(sums[i])}`), ...rows.map((band) =>
        make('span', {}, '\n', make('i', {class: memoryStyle(band.name)}), `${band.name}  ${bytes(band.bytes[i])}`)));
    tip.hidden = false;
    tip.style.left = `${Math.max(Math.min(at + 12, box.width - tip.offsetWidth), 0)}px`;
  };
  plot.addEventListener('pointermove', show);
  plot.addEventListener('pointerdown', show);
  plot.addEventListener('pointerleave', () => { tip.hidden = true; cursor.setAttribute('visibility', 'hidden'); });
  const phase = (word) => memory.columns.filter((name) => name.startsWith(word)).length;
  const phases = ['forward', 'backward', 'optimizer'].filter((word) => phase(word) > 0);
  return [plot, make('div', {class: 'phases'}, phases.map((word) =>
      make('span', {flex: `${phase(word)} 1 0`}, word === 'optimizer' ? 'update' : word)))];
}

function memoryOf(run) {
  const {facts, status} = run;
  if (!facts || !facts.memory || facts.memory.length === 0) return [];
  const parts = memoryParts(facts.memory);
  const all = parts.reduce((sum, part) => sum + part.size, 0);
  const more = status && status.memory_bytes > 0 ? beside('most that the process had', bytes(status.memory_bytes)) : null;
  const over = facts.memory_over_steps;
  const picture = over && over.columns.length > 0 ? memoryOverSteps(over, facts.memory_bytes) : stackOf(parts);
  return [section('half', 'Memory', facts.workers > 1 ? 'plan of rank 0 over a step' : 'plan over a step', picture, make('table', {}, tableOf(parts, all),
      make('tr', {class: 'sum'}, make('td', {class: 'name'}, 'planned', make('small', {}, `${grouped(facts.memory_bytes)} bytes`)),
          make('td', {class: 'number'}, bytes(facts.memory_bytes)), make('td')), more))];
}
