// Charts of curves over steps, tokens or time, on canvases. All charts share the part of the axis that
// they show: dragging over one of them selects it, a double click shows all again.

const style = getComputedStyle(document.documentElement);
const colourOf = (name) => style.getPropertyValue(`--${name}`).trim();
const palette = ['blue', 'orange', 'teal', 'purple', 'rose', 'grey', 'good', 'warn'];

const view = {
  axis: 'step',      // or tokens, seconds
  logarithmic: false,
  smoothing: 0.6,    // of what a smoothed value keeps of the one before it
  part: null,        // [from, to] of the axis; null: all
  cursor: null,      // where the pointer is on the axis
};

const axisNames = {step: 'step', tokens: 'tokens', seconds: 'time'};

// Round numbers, equally far apart.
function ticksAround(low, high, wanted) {
  const rough = Math.max((high - low) / wanted, Number.MIN_VALUE);
  const power = 10 ** Math.floor(Math.log10(rough));
  const distance = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough * 0.999);
  const ticks = [];
  for (let i = Math.ceil(low / distance - 1e-9); i * distance <= high * (1 + 1e-12) + distance * 1e-9; ++i) {
    ticks.push(i * distance + 0);  // not -0
    if (ticks.length > 50) break;
  }
  return ticks;
}

// Powers of ten, and two between them where there are few.
function logTicks(low, high) {
  const ticks = [];
  const few = Math.log10(high / low) < 2.5;
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power) {
    for (const factor of few ? [1, 2, 5] : [1]) {
      const value = factor * 10 ** power;
      if (value >= low * 0.999 && value <= high * 1.001) ticks.push(value);
    }
  }
  return ticks;
}

function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e4) return scaled(value, '').trim();
  if (size !== 0 && size < 1e-3) return value.toExponential(0).replace('+', '');
  return value.toLocaleString('en', {maximumSignificantDigits: 4});
}

const axisText = (value) => view.axis === 'seconds' ? duration(Math.max(value, 0)) :
    view.axis === 'tokens' ? scaled(value, '').trim() : tickText(value);

// The index of the first value that is at least `wanted`, in an ascending list.
function lowerBound(list, wanted) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle] < wanted) low = middle + 1; else high = middle;
  }
  return low;
}

// A mean in which earlier values count less; its first values are not drawn to zero.
function smoothed(values, keep) {
  let sum = 0, weight = 0;
  return values.map((value) => {
    if (!isNumber(value)) return null;
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return sum / weight;
  });
}

// A curve: {name, colour, series, column, factor, smooth, dots, dashed, quiet, unlisted}. Its values,
// drawn and shown, are those of the column times the factor. The legend has those that are listed.
class Chart {
  constructor(title, unit, size, options = {}) {
    this.options = options;
    this.legend = make('span', {class: 'legend'});
    this.canvas = make('canvas', {role: 'img', 'aria-label': title});
    this.tip = make('div', {class: 'tip', hidden: true});
    this.plot = make('div', {class: 'plot'}, this.canvas, this.tip);
    this.element = make('figure', {class: `card ${size}`, 'data-chart': title},
        make('div', {class: 'head'}, make('h2', {}, title), make('span', {class: 'unit'}, unit), this.legend),
        this.plot);
    this.curves = [];
    this.marks = [];
    this.drag = null;
    this.plot.addEventListener('pointermove', (event) => this.point(event));
    this.plot.addEventListener('pointerdown', (event) => this.press(event));
    this.plot.addEventListener('pointerup', (event) => this.release(event));
    this.plot.addEventListener('pointercancel', () => { this.drag = null; this.leave(); });
    this.plot.addEventListener('pointerleave', () => { if (!this.drag) this.leave(); });
    this.plot.addEventListener('dblclick', () => showPart(null));
  }

  show(curves, marks) {
    this.curves = curves.filter((curve) => curve.series.columns.has(curve.column));
    this.marks = marks;
    this.element.hidden = this.curves.length === 0;
    const named = this.curves.filter((curve) => curve.name && !curve.unlisted);
    this.legend.replaceChildren(...(named.length > 1 || this.options.legend ? named : []).map((curve) =>
        make('span', {}, make('i', {colour: colourOf(curve.colour)}), curve.name)));
  }

  // What is to be drawn: of every curve the places, lowest, highest and smoothed values.
  prepare() {
    let left = Infinity, right = -Infinity;
    this.drawn = this.curves.map((curve) => {
      const {series} = curve;
      const column = series.columns.get(curve.column);
      const factor = curve.factor || 1;
      const times = (list) => factor === 1 ? list : list.map((value) => isNumber(value) ? value * factor : value);
      const places = series[view.axis];
      if (places.length > 0) {
        left = Math.min(left, view.axis === 'step' ? series.first_step[0] - 1 : 0);
        right = Math.max(right, places[places.length - 1]);
      }
      const first = times(column.first), second = times(column.second);
      const mean = column.mean === column.first ? first : times(column.mean);
      const smooth = curve.smooth && view.smoothing > 0 && places.length > 20;
      return {curve, places, first, second, mean, line: smooth ? smoothed(mean, view.smoothing) : mean, smooth};
    });
    this.range = view.part || [left, right > left ? right : left + 1];
  }

  valueRange() {
    let low = Infinity, high = -Infinity;
    const [from, to] = this.range;
    const values = [];
    for (const one of this.drawn) {
      const begin = Math.max(lowerBound(one.places, from) - 1, 0);
      const end = Math.min(lowerBound(one.places, to) + 1, one.places.length);
      for (let i = begin; i < end; ++i) {
        for (const value of [one.first[i], one.second[i]]) {
          if (!isNumber(value) || (view.logarithmic && value <= 0)) continue;
          values.push(value);
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
    }
    if (values.length === 0) return null;
    // A few far values, as of the first steps, shall not flatten the rest.
    if (!view.logarithmic && this.options.robust && values.length > 50) {
      values.sort((a, b) => a - b);
      const at = (share) => values[Math.floor(share * (values.length - 1))];
      high = Math.min(high, at(0.98) + 3 * (at(0.98) - at(0.1)) + 1e-300);
    }
    if (view.logarithmic) return low === high ? [low / 2, high * 2] : [low / 1.05, high * 1.05];
    if (this.options.fromZero && low >= 0) low = 0;
    if (low === high) { high += Math.abs(high) * 0.1 || 1; low -= low === 0 ? 0 : Math.abs(low) * 0.1; }
    const ticks = ticksAround(low, high, 4);
    const distance = ticks.length > 1 ? ticks[1] - ticks[0] : high - low;
    return [low === 0 ? 0 : Math.max(low - distance * 0.15, low > 0 ? 0 : -Infinity), high + distance * 0.15];
  }

  draw() {
    if (this.element.hidden || !this.element.isConnected) return;
    const width = this.plot.clientWidth, height = this.plot.clientHeight;
    if (width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
    }
    const pen = this.canvas.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = '11.5px system-ui, sans-serif';
    this.prepare();
    const values = this.valueRange();
    if (!values) {
      pen.fillStyle = colourOf('quiet');
      pen.fillText('No values here so far.', 8, height / 2);
      this.frame = null;
      return;
    }
    const [low, high] = values;
    const ticks = view.logarithmic ? logTicks(low, high) : ticksAround(low, high, height > 240 ? 6 : 4);
    const texts = ticks.map(tickText);
    const before = Math.max(...texts.map((text) => pen.measureText(text).width), 20) + 10;
    const frame = this.frame = {left: before, right: width - 10, top: 8, bottom: height - 24};
    const [from, to] = this.range;
    const x = this.x = (place) => frame.left + (place - from) / (to - from) * (frame.right - frame.left);
    const share = view.logarithmic ? (value) => Math.log(value / low) / Math.log(high / low) : (value) => (value - low) / (high - low);
    const y = this.y = (value) => frame.bottom - share(value) * (frame.bottom - frame.top);
    pen.lineWidth = 1;
    pen.textAlign = 'right';
    pen.textBaseline = 'middle';
    ticks.forEach((tick, i) => {
      const at = Math.round(y(tick)) + 0.5;
      pen.strokeStyle = colourOf('grid');
      line(pen, frame.left, at, frame.right, at);
      pen.fillStyle = colourOf('quiet');
      pen.fillText(texts[i], frame.left - 8, at);
    });
    pen.strokeStyle = colourOf('axis');
    line(pen, frame.left, frame.bottom + 0.5, frame.right, frame.bottom + 0.5);
    pen.textAlign = 'center';
    pen.textBaseline = 'top';
    for (const tick of ticksAround(from, to, Math.max(2, Math.floor((frame.right - frame.left) / 90)))) {
      const at = x(tick);
      if (at < frame.left - 1 || at > frame.right + 1) continue;
      line(pen, Math.round(at) + 0.5, frame.bottom, Math.round(at) + 0.5, frame.bottom + 4);
      const half = pen.measureText(axisText(tick)).width / 2;
      pen.fillText(axisText(tick), Math.min(at, width - half - 1), frame.bottom + 7);
    }
    pen.save();
    pen.beginPath();
    pen.rect(frame.left, frame.top - 4, frame.right - frame.left + 1, frame.bottom - frame.top + 5);
    pen.clip();
    this.drawMarks(pen);
    for (const one of this.drawn) this.drawCurve(pen, one);
    pen.restore();
    this.drawPointer(pen);
  }

  drawCurve(pen, one) {
    const {curve, places} = one;
    const [from, to] = this.range;
    const begin = Math.max(lowerBound(places, from) - 1, 0);
    const end = Math.min(lowerBound(places, to) + 2, places.length);
    pen.strokeStyle = pen.fillStyle = colourOf(curve.colour);
    pen.lineJoin = pen.lineCap = 'round';
    pen.setLineDash(curve.dashed ? [5, 4] : []);
    const usable = (value) => isNumber(value) && (!view.logarithmic || value > 0);
    const stroke = (lists, thickness, alpha) => {
      pen.lineWidth = thickness;
      pen.globalAlpha = alpha;
      pen.beginPath();
      let open = false, alone = null;
      for (let i = begin; i < end; ++i) {
        let any = false;
        for (const list of lists) {
          if (!usable(list[i])) continue;
          any = true;
          const at = [this.x(places[i]), this.y(list[i])];
          if (open) { pen.lineTo(...at); alone = null; } else { pen.moveTo(...at); alone = at; }
          open = true;
        }
        // Where a column has values now and then alone, they are joined.
        if (!any && !curve.sparse) {
          if (alone) pen.lineTo(alone[0] + 0.01, alone[1]);
          open = false;
          alone = null;
        }
      }
      if (alone) pen.lineTo(alone[0] + 0.01, alone[1]);
      pen.stroke();
    };
    const both = one.first === one.second ? [one.first] : [one.first, one.second];
    if (one.smooth) stroke(both, 1, curve.quiet ? 0.14 : 0.28);
    stroke(one.smooth ? [one.line] : both, one.smooth ? 1.8 : 1.4, 1);
    pen.globalAlpha = 1;
    pen.setLineDash([]);
    if (!curve.dots || end - begin > 100) return;
    for (let i = begin; i < end; ++i) {
      if (!usable(one.first[i])) continue;
      pen.beginPath();
      pen.arc(this.x(places[i]), this.y(one.first[i]), 3, 0, 2 * Math.PI);
      pen.fillStyle = colourOf('card');
      pen.fill();
      pen.lineWidth = 1.5;
      pen.stroke();
    }
  }

  // Where a run was continued.
  drawMarks(pen) {
    pen.textAlign = 'left';
    pen.textBaseline = 'top';
    let free = -Infinity;
    for (const mark of this.marks) {
      const at = Math.round(this.x(mark.places[view.axis])) + 0.5;
      if (at < this.frame.left || at > this.frame.right) continue;
      pen.strokeStyle = colourOf('axis');
      pen.setLineDash([3, 3]);
      line(pen, at, this.frame.top - 4, at, this.frame.bottom);
      pen.setLineDash([]);
      if (!this.options.legend || at < free) continue;
      pen.fillStyle = colourOf('quiet');
      const width = pen.measureText(mark.text).width + 12;
      if (at + width > this.frame.right) { pen.textAlign = 'right'; pen.fillText(mark.text, at - 6, this.frame.top); pen.textAlign = 'left'; } else { pen.fillText(mark.text, at + 6, this.frame.top); }
      free = at + width;
    }
  }

  drawPointer(pen) {
    if (this.drag && this.drag.moved) {
      pen.fillStyle = colourOf('blue');
      pen.globalAlpha = 0.15;
      pen.fillRect(this.drag.from, this.frame.top, this.drag.to - this.drag.from, this.frame.bottom - this.frame.top);
      pen.globalAlpha = 1;
    }
    if (view.cursor === null) return;
    const at = this.x(view.cursor);
    if (at < this.frame.left - 1 || at > this.frame.right + 1) return;
    pen.strokeStyle = colourOf('quiet');
    pen.setLineDash([3, 3]);
    line(pen, Math.round(at) + 0.5, this.frame.top, Math.round(at) + 0.5, this.frame.bottom);
    pen.setLineDash([]);
  }

  // The bucket of each curve that is nearest to a place of the axis.
  nearest(one, wanted) {
    const {places} = one;
    if (places.length === 0) return -1;
    let at = Math.min(lowerBound(places, wanted), places.length - 1);
    if (at > 0 && wanted - places[at - 1] < places[at] - wanted) --at;
    return at;
  }

  point(event) {
    if (!this.frame) return;
    const box = this.plot.getBoundingClientRect();
    const at = event.clientX - box.left;
    const [from, to] = this.range;
    if (this.drag) {
      this.drag.to = Math.min(Math.max(at, this.frame.left), this.frame.right);
      this.drag.moved = this.drag.moved || Math.abs(this.drag.to - this.drag.from) > 6;
    }
    const wanted = from + (at - this.frame.left) / (this.frame.right - this.frame.left) * (to - from);
    const main = this.drawn.find((one) => one.places.length > 0);
    if (!main) return;
    view.cursor = main.places[this.nearest(main, wanted)];
    const rows = this.drawn.map((one) => this.rowOf(one, wanted)).filter((row) => row !== null);
    const index = this.nearest(main, wanted);
    const head = `step ${grouped(main.curve.series.step[index])}` +
        (view.axis === 'step' ? '' : `, ${axisText(view.cursor)}`);
    this.tip.replaceChildren(make('b', {}, head), ...rows);
    this.tip.hidden = false;
    const beside = this.x(view.cursor) + 12;
    const flips = beside + this.tip.offsetWidth > this.plot.clientWidth;
    this.tip.style.left = `${Math.max(flips ? beside - 24 - this.tip.offsetWidth : beside, 0)}px`;
    drawCharts();
  }

  rowOf(one, wanted) {
    const index = this.nearest(one, wanted);
    if (index < 0 || !isNumber(one.mean[index])) return null;
    const exact = one.first[index] === one.second[index];
    const range = exact ? '' : ` (${short(Math.min(one.first[index], one.second[index]))} to ${short(Math.max(one.first[index], one.second[index]))})`;
    const row = make('span', {'data-value': one.mean[index], 'data-step': one.curve.series.step[index]},
        '\n', make('i', {colour: colourOf(one.curve.colour)}), `${one.curve.name || one.curve.column}  ${short(one.mean[index])}${range}`);
    return row;
  }

  press(event) {
    if (!this.frame || event.button !== 0) return;
    const at = event.clientX - this.plot.getBoundingClientRect().left;
    this.drag = {from: at, to: at, moved: false};
    this.plot.setPointerCapture(event.pointerId);
  }

  release() {
    const drag = this.drag;
    this.drag = null;
    if (!drag || !drag.moved) return;
    const [from, to] = this.range;
    const place = (at) => from + (at - this.frame.left) / (this.frame.right - this.frame.left) * (to - from);
    const ends = [drag.from, drag.to].sort((a, b) => a - b);
    showPart([place(ends[0]), place(ends[1])]);
  }

  leave() {
    this.tip.hidden = true;
    view.cursor = null;
    drawCharts();
  }
}

function line(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}
