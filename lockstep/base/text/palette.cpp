#include "lockstep/base/text/palette.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string_view colour_on(const PaletteColour& colour, Screen screen) {
  return screen == Screen::kLight ? colour.light : colour.dark;
}

}  // namespace

std::string palette_variables(Screen screen) {
  std::string text;
  for (const PaletteColour& colour : kPalette) {
    text += fmt::format("--{}: {}; ", colour.name, colour_on(colour, screen));
  }
  return text;
}

std::string with_colours(std::string_view style, Screen screen) {
  std::string text(style);
  for (const PaletteColour& colour : kPalette) {
    const std::string variable = fmt::format("var(--{})", colour.name);
    for (auto at = text.find(variable); at != std::string::npos; at = text.find(variable, at)) {
      text.replace(at, variable.size(), colour_on(colour, screen));
    }
  }
  return text;
}

}  // namespace lockstep
