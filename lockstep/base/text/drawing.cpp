#include "lockstep/base/text/drawing.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/palette.h"
#include "lockstep/base/text/text.h"

namespace lockstep {
namespace {

constexpr double kNoteSize = 13;
constexpr double kNoteLine = 18;
constexpr double kHeadLength = 7;
constexpr double kHeadWidth = 6;

constexpr std::string_view kShapes = R"(
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
.title { font-size: 18px; font-weight: 650; }
.small { font-size: 11.5px; }
.tiny { font-size: 10px; }
.strong { font-weight: 600; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.soft { fill-opacity: 0.18; stroke-opacity: 0.9; }
.ghost { fill-opacity: 0; stroke-dasharray: 3 3; }
.thick { stroke-width: 2.5; }
.thin { stroke-width: 0.75; }
.dashed { stroke-dasharray: 4 3; }
)";

constexpr std::string_view kDrawnColours[] = {"blue", "orange", "teal", "purple", "rose", "grey"};

std::string colour_rules() {
  std::string rules =
      "text { fill: var(--text); }\n.note, .quiet { fill: var(--quiet); }\n"
      ".on { fill: var(--card); }\n.page { fill: var(--card); stroke: var(--line); }\n"
      ".card { fill: var(--card); }\n.band { fill: var(--grid); }\n"
      ".line-axis { stroke: var(--axis); }\n.line-grid { stroke: var(--line); }\n"
      ".line-card { stroke: var(--card); }\n";
  for (const std::string_view name : kDrawnColours) {
    rules += fmt::format(
        ".{0} {{ fill: var(--{0}); }}\n.ink-{0} {{ fill: var(--{0}); }}\n"
        ".line-{0}, .soft.{0}, .ghost.{0} {{ stroke: var(--{0}); }}\n",
        name);
  }
  return rules;
}

// Rounded to a tenth; what lies in the middle between two goes up, also where it was computed with
// an error in its last bits.
std::string number(double value) {
  constexpr double kBias = 1e-6;
  const double tenths = std::floor(value * 10 + 0.5 + kBias);
  if (tenths == 0) return "0";
  if (std::fmod(tenths, 10) == 0) return fmt::format("{:.0f}", tenths / 10);
  return fmt::format("{:.1f}", tenths / 10);
}

std::string class_of(std::string_view style) {
  return style.empty() ? "" : fmt::format(" class=\"{}\"", style);
}

}  // namespace

Drawing::Drawing(double width, std::string title, std::string description)
    : width_(width), title_(std::move(title)), description_(std::move(description)) {
  text(kMargin, 34, title_, "title");
  notes_end_ = 34 + 3;
}

void Drawing::note(std::string_view words) {
  std::string line;
  const auto end_line = [&] {
    notes_end_ += kNoteLine;
    text(kMargin, notes_end_, line, "note");
    line.clear();
  };
  for (const std::string_view word : split_text(words, ' ')) {
    const std::string longer = line.empty() ? std::string(word) : fmt::format("{} {}", line, word);
    if (!line.empty() && text_width(longer, kNoteSize) > width_ - 2 * kMargin) {
      end_line();
      line = word;
    } else {
      line = longer;
    }
  }
  if (!line.empty()) end_line();
}

double Drawing::legend(double x, double y, const std::vector<Key>& keys) {
  for (const Key& key : keys) {
    box({x, y - 9, 12, 10}, key.style, 2);
    text(x + 18, y, key.text, "small quiet");
    x += 18 + text_width(key.text, 11.5) + 18;
  }
  return x;
}

void Drawing::box(const Area& area, std::string_view style, double radius) {
  // What lies behind a pale area does not show through it.
  if (style.starts_with("soft ")) box(area, "card", radius);
  body_ += fmt::format("<rect{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", class_of(style),
                       number(area.x), number(area.y), number(area.width), number(area.height));
  if (radius > 0) body_ += fmt::format(" rx=\"{}\"", number(radius));
  body_ += "/>\n";
}

void Drawing::line(Point from, Point to, std::string_view style) {
  body_ += fmt::format("<line{} x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", class_of(style),
                       number(from.x), number(from.y), number(to.x), number(to.y));
}

void Drawing::circle(Point centre, double radius, std::string_view style) {
  body_ += fmt::format("<circle{} cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", class_of(style),
                       number(centre.x), number(centre.y), number(radius));
}

void Drawing::arrow(Point from, Point to, std::string_view colour, double bend,
                    std::string_view style) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) return;
  const Point ahead{(to.x - from.x) / length, (to.y - from.y) / length};
  // The control point of a quadratic curve that passes `bend` beside the middle.
  const Point control{(from.x + to.x) / 2 + 2 * bend * ahead.y,
                      (from.y + to.y) / 2 - 2 * bend * ahead.x};
  const double last = std::hypot(to.x - control.x, to.y - control.y);
  const Point tip{(to.x - control.x) / last, (to.y - control.y) / last};
  const Point neck{to.x - kHeadLength * tip.x, to.y - kHeadLength * tip.y};
  const std::string way = bend == 0
                              ? fmt::format("L{} {}", number(neck.x), number(neck.y))
                              : fmt::format("Q{} {} {} {}", number(control.x), number(control.y),
                                            number(neck.x), number(neck.y));
  body_ += fmt::format("<path class=\"line-{}{}{}\" fill=\"none\" d=\"M{} {}{}\"/>\n", colour,
                       style.empty() ? "" : " ", style, number(from.x), number(from.y), way);
  const double half = kHeadWidth / 2;
  body_ += fmt::format("<path class=\"{}\" d=\"M{} {}L{} {}L{} {}z\"/>\n", colour, number(to.x),
                       number(to.y), number(neck.x - half * tip.y), number(neck.y + half * tip.x),
                       number(neck.x + half * tip.y), number(neck.y - half * tip.x));
}

void Drawing::text(double x, double y, std::string_view words, std::string_view style) {
  body_ += fmt::format("<text{} x=\"{}\" y=\"{}\">{}</text>\n", class_of(style), number(x),
                       number(y), escape_markup(words));
}

bool Drawing::label(const Area& area, std::string_view words, std::string_view style) {
  const double size = style.find("tiny") != std::string_view::npos    ? 10
                      : style.find("small") != std::string_view::npos ? 11.5
                                                                      : 13;
  if (text_width(words, size) + 4 > area.width || size > area.height) return false;
  text(area.middle(), area.centre() + size * 0.36, words, fmt::format("{} middle", style));
  return true;
}

void Drawing::slanted(double x, double y, std::string_view words, std::string_view style) {
  body_ += fmt::format("<text{} transform=\"translate({} {}) rotate(-40)\">{}</text>\n",
                       class_of(style), number(x), number(y), escape_markup(words));
}

double Drawing::text_width(std::string_view words, double size) {
  double width = 0;
  for (const char c : words) {
    const bool narrow = std::string_view("iljtfr.,:;|!'()[] ").find(c) != std::string_view::npos;
    const bool wide = std::string_view("mwMW@%").find(c) != std::string_view::npos;
    const bool upper = c >= 'A' && c <= 'Z';
    width += narrow ? 0.38 : wide ? 0.92 : upper ? 0.70 : 0.62;
  }
  return width * size;
}

std::string Drawing::finish(double height) const {
  const std::string coloured = colour_rules() + rules_;
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "height=\"{1}\" role=\"img\" aria-labelledby=\"title description\">\n"
      "<title id=\"title\">{2}</title>\n<desc id=\"description\">{3}</desc>\n"
      "<style>{4}{5}@media (prefers-color-scheme: dark) {{\n{6}}}\n</style>\n"
      "<rect class=\"page\" x=\"0.5\" y=\"0.5\" width=\"{7}\" height=\"{8}\" rx=\"10\"/>\n"
      "{9}</svg>\n",
      number(width_), number(height), escape_markup(title_), escape_markup(description_), kShapes,
      with_colours(coloured, Screen::kLight), with_colours(coloured, Screen::kDark),
      number(width_ - 1), number(height - 1), body_);
}

}  // namespace lockstep
