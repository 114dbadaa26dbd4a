// The style sheet of a report, and the script that shows values under the pointer; the page is
// complete without the script.
#pragma once

#include <string>
#include <string_view>

#include "lockstep/base/text/palette.h"

namespace lockstep::train {

// The charts and timelines of a report, also where they stand alone as a picture.
inline constexpr std::string_view kChartRules = R"(
.grid { stroke: var(--grid); } .axis { stroke: var(--axis); }
.tick { fill: var(--quiet); font-size: 11.5px; }
.tick.value { text-anchor: end; } .tick.step { text-anchor: middle; }
.curve { fill: none; stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round; }
.curve.faint { stroke: var(--blue); stroke-width: 1; opacity: 0.32; }
.curve.blue { stroke: var(--blue); } .curve.orange { stroke: var(--orange); }
.curve.teal { stroke: var(--teal); stroke-width: 1; }
.curve.purple { stroke: var(--purple); stroke-width: 1; }
.dot.orange { fill: var(--card); stroke: var(--orange); stroke-width: 1.5; }
.curve.rose { stroke: var(--rose); }
.bar.blue { fill: var(--blue); } .bar.orange { fill: var(--orange); }
.bar.teal { fill: var(--teal); } .bar.purple { fill: var(--purple); }
.bar.rose { fill: var(--rose); } .bar.grey { fill: var(--grey); }
.inbar { fill: var(--card); font-size: 10.5px; text-anchor: middle; pointer-events: none; }
.rank { fill: var(--text); font-size: 12.5px; font-weight: 600; } .between { opacity: 0.5; }
.pointer { stroke: var(--quiet); stroke-dasharray: 3 3; visibility: hidden; }
)";

inline constexpr std::string_view kPageRules = R"(
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Inter, Roboto, "Helvetica Neue", sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
h1 { margin: 0; font-size: 26px; line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; }
h2 { margin: 0; font-size: 15px; font-weight: 600; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 8px 14px; }
.state { padding: 1px 10px; border: 1px solid; border-radius: 99px; font-size: 13px; }
.finished, .running { color: var(--good); } .interrupted { color: var(--warn); } .failed { color: var(--bad); }
.when { margin: 4px 0 0; color: var(--quiet); font-size: 14px; }
.failure { margin: 20px 0 0; padding: 12px 16px; border-left: 3px solid var(--bad);
  background: var(--card); white-space: pre-wrap; overflow-wrap: anywhere; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 20px; min-width: 0; margin: 0; }
.cards { display: grid; grid-template-columns: repeat(6, 1fr); gap: 16px;
  margin-top: 16px; }
.third { grid-column: span 2; } .half { grid-column: span 3; } .most { grid-column: span 4; }
.wide { grid-column: 1 / -1; }
.tiles { display: grid; grid-template-columns: repeat(4, 1fr); gap: 1px; margin-top: 24px;
  background: var(--line); border: 1px solid var(--line); border-radius: 10px; overflow: hidden; }
.tile { background: var(--card); padding: 14px 20px; min-width: 0; }
.tile dt, .facts dt { color: var(--quiet); font-size: 13px; }
.tile dd { margin: 0; font-size: 21px; font-weight: 600; letter-spacing: -0.01em; line-height: 1.35; }
.tile p { margin: 0; color: var(--quiet); font-size: 13px; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 5px 28px; margin: 0; }
.facts dd { margin: 0; overflow-wrap: anywhere; } .facts dt { line-height: 1.75; }
.head { display: flex; flex-wrap: wrap; align-items: baseline; gap: 2px 18px; margin-bottom: 10px; }
.head .unit { color: var(--quiet); font-size: 13px; margin-left: -10px; }
.legend { margin-left: auto; display: flex; gap: 16px; color: var(--quiet); font-size: 13px; }
.legend i { display: inline-block; width: 14px; height: 3px; border-radius: 2px; margin-right: 6px;
  vertical-align: middle; }
.scroll { position: relative; overflow-x: auto; }
svg.chart { display: block; width: 100%; min-width: 300px; height: auto; }
.wide svg.chart { min-width: 640px; }
i.faint { background: var(--blue); opacity: 0.4; } i.grey { background: var(--grey); }
i.blue { background: var(--blue); } i.orange { background: var(--orange); }
i.teal { background: var(--teal); } i.purple { background: var(--purple); }
i.rose { background: var(--rose); }
svg.timeline { min-width: 860px; }
g:hover > .bar { filter: brightness(1.15); }
.note { margin: 10px 0 0; color: var(--quiet); font-size: 13px; }
.tip { position: absolute; top: 6px; padding: 5px 10px; border: 1px solid var(--line);
  border-radius: 6px; background: var(--card); font-size: 12.5px; line-height: 1.45;
  white-space: pre; pointer-events: none; visibility: hidden; box-shadow: 0 2px 8px #0002; }
table { width: 100%; border-collapse: collapse; font-size: 14px; }
td { padding: 4px 0; vertical-align: middle; }
td.name { white-space: nowrap; padding-right: 14px; }
td.name small { color: var(--quiet); font-size: 13px; font-weight: 400; white-space: nowrap;
  margin-left: 8px; }
td.bar { width: 40%; }
td.number { text-align: right; white-space: nowrap; padding-left: 14px; }
td.share { color: var(--quiet); width: 4em; }
td.bar i { display: block; height: 8px; border-radius: 2px; min-width: 1px; }
tr.sum td { border-top: 1px solid var(--line); padding-top: 8px; font-weight: 600; }
tr.beside td { color: var(--quiet); }
tr.sum + tr.beside td, tr.first td { padding-top: 8px; }
.stack { display: flex; gap: 2px; height: 14px; margin: 4px 0 14px; border-radius: 4px;
  overflow: hidden; }
.swatch { display: inline-block; width: 9px; height: 9px; border-radius: 2px; margin-right: 9px; }
.sample { display: grid; grid-template-columns: 7.5em 1fr; padding: 10px 0;
  border-top: 1px solid var(--line); }
.head + .sample { border-top: 0; padding-top: 0; } .sample:last-child { padding-bottom: 0; }
.sample b { font-weight: 500; color: var(--quiet); font-size: 13px; line-height: 1.7; }
pre { margin: 0; font: 13px/1.55 ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas,
  "DejaVu Sans Mono", monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.sample pre { max-height: 17em; overflow-y: auto; }
summary { cursor: pointer; font-weight: 600; } details[open] summary { margin-bottom: 12px; }
.none { color: var(--quiet); margin: 0; }
footer { margin-top: 28px; color: var(--quiet); font-size: 13px; }
@media (max-width: 760px) {
  main { padding: 24px 14px 40px; } td.bar { width: 18%; }
  td.name { white-space: normal; overflow-wrap: anywhere; } .cards > * { grid-column: 1 / -1; }
  .tiles { grid-template-columns: 1fr 1fr; } .sample { grid-template-columns: 1fr; }
}
@media print { body { background: none; } .card { break-inside: avoid; } }
)";

inline std::string report_style() {
  std::string style = "\n:root { color-scheme: light dark; ";
  style += palette_variables(Screen::kLight);
  style += "}\n@media (prefers-color-scheme: dark) { :root { ";
  style += palette_variables(Screen::kDark);
  style += "} }";
  style += kPageRules;
  return style += kChartRules;
}

inline constexpr std::string_view kReportScript = R"(
for (const svg of document.querySelectorAll('svg[data-curves]')) {
  const curves = JSON.parse(svg.dataset.curves);
  const [left, right, first, last] = JSON.parse(svg.dataset.frame);
  const line = svg.querySelector('.pointer');
  const tip = svg.parentNode.appendChild(document.createElement('div'));
  tip.className = 'tip';
  const nearest = (steps, step) => {
    let low = 0, high = steps.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle] < step) low = middle + 1; else high = middle;
    }
    return low > 0 && step - steps[low - 1] < steps[low] - step ? low - 1 : low;
  };
  const show = (visible) => {
    line.style.visibility = tip.style.visibility = visible ? 'visible' : 'hidden';
  };
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const scale = box.width / svg.viewBox.baseVal.width;
    const wanted = first + ((event.clientX - box.left) / scale - left) / (right - left) * (last - first);
    const main = curves.find((curve) => curve[1].length > 0);
    if (!main) return;
    const step = main[1][nearest(main[1], wanted)];
    const x = left + (step - first) / (last - first) * (right - left);
    line.setAttribute('x1', x);
    line.setAttribute('x2', x);
    tip.textContent = 'step ' + step.toLocaleString('en') + curves.map(([name, steps, values]) => {
      if (steps.length === 0) return '';
      const at = nearest(steps, step);
      const where = Math.abs(steps[at] - step) < 1 ?
          '' : ' (step ' + Math.round(steps[at]).toLocaleString('en') + ')';
      return '\n' + name + '  ' + values[at].toLocaleString('en', {maximumSignificantDigits: 5}) + where;
    }).join('');
    const edge = svg.parentNode.scrollLeft + svg.parentNode.clientWidth;
    const beside = x * scale + 12;
    tip.style.left = (beside + tip.offsetWidth > edge ? x * scale - 12 - tip.offsetWidth : beside) + 'px';
    show(true);
  });
  svg.addEventListener('pointerleave', () => show(false));
}
)";

}  // namespace lockstep::train
