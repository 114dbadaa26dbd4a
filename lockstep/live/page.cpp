#include "lockstep/live/page.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text/markup.h"
#include "lockstep/base/text/palette.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/train/observe/report/style.h"

namespace lockstep::live {
namespace {

struct PagePart {
  std::string_view name;
  std::string_view text;
};

constexpr PagePart kParts[] = {
#include <page_parts.inc>
};

std::string_view part_named(std::string_view name) {
  for (const PagePart& part : kParts) {
    if (part.name == name) return part.text;
  }
  fail(ErrorCode::kSystem, "the page has no part {}", name);
}

std::string page_style() {
  std::string style = ":root { color-scheme: light dark; ";
  style += palette_variables(Screen::kLight);
  style += "}\n@media (prefers-color-scheme: dark) { :root { ";
  style += palette_variables(Screen::kDark);
  style += "} }\n";
  style += part_named("page.css");
  return style += train::kChartRules;
}

std::string page_script() {
  std::string script = "'use strict';\n";
  for (const char* name :
       {"model.js", "format.js", "chart.js", "memory.js", "sections.js", "page.js"}) {
    script += part_named(name);
  }
  return script;
}

// Replaces each "{{name}}" of page.html.
std::string filled(std::span<const PagePart> values) {
  std::string page;
  std::string_view rest = part_named("page.html");
  for (auto at = rest.find("{{"); at != std::string_view::npos; at = rest.find("{{")) {
    const auto end = rest.find("}}", at);
    page += rest.substr(0, at);
    const std::string_view name = rest.substr(at + 2, end - at - 2);
    for (const PagePart& value : values) {
      if (value.name == name) page += value.text;
    }
    rest.remove_prefix(end + 2);
  }
  return page += rest;
}

// Text that no "</script>" can end: "<" appears in JSON in strings alone.
std::string script_data(std::span<const std::string> messages) {
  std::string text = "[";
  for (const std::string& message : messages) {
    if (text.size() > 1) text += ",\n";
    for (const char c : message) {
      if (c == '<') {
        text += "\\u003c";
      } else {
        text += c;
      }
    }
  }
  return text += "]";
}

}  // namespace

std::string live_page(std::string_view nonce) {
  const std::string attribute = fmt::format(" nonce=\"{}\"", nonce);
  const std::string style = page_style();
  const std::string script = page_script();
  const PagePart values[] = {{"title", "lockstep"}, {"nonce", attribute}, {"style", style},
                             {"policy", ""},        {"data", ""},         {"script", script}};
  return filled(values);
}

std::string frozen_page(std::string_view title, std::span<const std::string> messages) {
  const std::string shown = escape_markup(printable(title));
  const std::string style = page_style();
  const std::string script = page_script();
  const std::string data = script_data(messages);
  constexpr std::string_view kPolicy =
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
      "'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\">\n";
  const PagePart values[] = {{"title", shown},    {"nonce", ""},  {"style", style},
                             {"policy", kPolicy}, {"data", data}, {"script", script}};
  return filled(values);
}

}  // namespace lockstep::live
