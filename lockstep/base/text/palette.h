// The colours of everything that lockstep draws: reports of runs and pictures.
//
// A style sheet names a colour as var(--blue). A page declares the variables (palette_variables());
// a picture, which many viewers show without support for variables, has them replaced by the
// colours themselves (with_colours()), once for light and once for dark screens.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

struct PaletteColour {
  std::string_view name;
  std::string_view light;
  std::string_view dark;
};

inline constexpr PaletteColour kPalette[] = {
    {"page", "#f6f7f9", "#0e1116"},   {"card", "#ffffff", "#161a21"},
    {"line", "#e2e6eb", "#2a303a"},   {"grid", "#edf0f3", "#222833"},
    {"axis", "#b6bec9", "#4a5361"},   {"text", "#1c2128", "#e4e8ee"},
    {"quiet", "#626c79", "#98a2b0"},  {"blue", "#2563c9", "#6ea3f7"},
    {"orange", "#c8600a", "#efa055"}, {"teal", "#0d857c", "#4fc2b5"},
    {"purple", "#7a4fc4", "#b295ee"}, {"rose", "#c43d5c", "#f08299"},
    {"grey", "#9aa4b1", "#6b7583"},   {"good", "#18794e", "#55c794"},
    {"warn", "#a15c00", "#e3b155"},   {"bad", "#b42318", "#f38b80"},
};

enum class Screen { kLight, kDark };

// "--page: #f6f7f9; --card: ...", for a rule of a style sheet.
std::string palette_variables(Screen screen);

// The style sheet with every var(--name) replaced by its colour.
std::string with_colours(std::string_view style, Screen screen);

}  // namespace lockstep
