// The style sheet of charts and timelines.
#pragma once

#include <string_view>

namespace lockstep::train {

// On a page, and where they stand alone as a picture.
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

}  // namespace lockstep::train
