// Numbers and times for people, and elements.

const grouped = (value) => Math.round(value).toLocaleString('en');
const isNumber = (value) => typeof value === 'number' && Number.isFinite(value);
const loss = (value) => isNumber(value) ? value.toFixed(4) : 'none';
const percent = (share) => share > 0 && share < 0.001 ? '< 0.1%' : `${(100 * share).toFixed(1)}%`;

// As many digits as are worth reading.
function short(value) {
  if (!isNumber(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e5) return grouped(value);
  if (size !== 0 && size < 1e-3) return value.toExponential(2);
  return value.toLocaleString('en', {maximumSignificantDigits: 5});
}

function scaled(value, unit) {
  const prefixes = ['', 'k', 'M', 'G', 'T', 'P', 'E'];
  let index = 0;
  while (Math.abs(value) >= 1000 && index < prefixes.length - 1) { value /= 1000; ++index; }
  return `${value.toLocaleString('en', {maximumSignificantDigits: 3})} ${prefixes[index]}${unit}`;
}

function words(value) {
  for (const [size, word] of [[1e12, 'trillion'], [1e9, 'billion'], [1e6, 'million'], [1e3, 'thousand']]) {
    if (value >= size) return `${(value / size).toLocaleString('en', {maximumSignificantDigits: 3})} ${word}`;
  }
  return grouped(value);
}

function bytes(value) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let index = 0;
  while (value >= 1024 && index < units.length - 1) { value /= 1024; ++index; }
  return `${value.toLocaleString('en', {maximumSignificantDigits: 3, useGrouping: false})} ${units[index]}`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return '–';
  const two = (value) => String(value).padStart(2, '0');
  if (seconds < 9.95) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  const hours = Math.floor(whole / 3600);
  if (hours < 48) return `${hours}h ${two(Math.floor(whole % 3600 / 60))}m`;
  return `${Math.floor(hours / 24)}d ${two(hours % 24)}h`;
}

// Of one step.
function brief(seconds) {
  if (!isNumber(seconds)) return '–';
  if (seconds >= 10) return duration(seconds);
  const [size, unit] = seconds >= 1 ? [seconds, 's'] : seconds >= 1e-3 ? [seconds * 1e3, 'ms'] : [seconds * 1e6, 'µs'];
  return `${size.toLocaleString('en', {maximumSignificantDigits: 3})} ${unit}`;
}

function moment(time) {
  if (!time) return '';
  const two = (value) => String(value).padStart(2, '0');
  const date = new Date(time * 1000);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ` +
      `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// make('p', {class: 'note'}, 'text', child, ...); text is never markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === undefined) continue;
    if (name === 'onclick' || name === 'oninput' || name === 'onchange') {
      element[name] = value;
    } else if (name === 'flex') {
      element.style.flex = value;
    } else if (name === 'colour') {
      element.style.background = value;
    } else if (name === 'width') {
      element.style.width = value;
    } else {
      element.setAttribute(name, value);
    }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== '') element.append(child);
  }
  return element;
}

const section = (size, title, unit, ...children) =>
    make('section', {class: `card ${size}`},
         make('div', {class: 'head'}, make('h2', {}, title), unit ? make('span', {class: 'unit'}, unit) : null),
         ...children);
