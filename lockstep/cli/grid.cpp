#include "lockstep/cli/grid.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/text/text.h"

namespace lockstep::cli {
namespace {

constexpr std::size_t kMostNameBytes = 120;

struct GridAxis {
  std::string key;
  std::vector<std::string> values;
};

GridAxis axis_of(const std::string& argument) {
  const std::size_t equals = argument.find('=');
  if (equals == std::string::npos || equals == 0) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is no setting; write key=value, or key=value,value for several runs", argument);
  }
  GridAxis axis{.key = argument.substr(0, equals), .values = {}};
  for (const std::string_view value :
       split_text(std::string_view(argument).substr(equals + 1), ',')) {
    axis.values.emplace_back(value);
  }
  if (axis.values.empty()) axis.values.emplace_back();
  for (const std::string& value : axis.values) {
    if (value.empty() && axis.values.size() > 1) {
      fail(ErrorCode::kInvalidArgument, "{} lists an empty value", argument);
    }
    if (std::ranges::count(axis.values, value) > 1) {
      fail(ErrorCode::kInvalidArgument, "{} lists the value {} twice", argument, value);
    }
  }
  return axis;
}

std::string last_part(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// As a file name: a separator of folders, or a name that is hidden, must not come of a value.
std::string as_file_name(std::string_view text) {
  constexpr std::string_view kPlain = "._=,+-";
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                       kPlain.find(c) != std::string_view::npos;
    name += plain ? c : '_';
  }
  if (name.starts_with('.')) name.front() = '_';
  return name;
}

// Different texts stay different.
std::string point_name(const std::string& text) {
  const std::string name = as_file_name(text);
  if (name == text && name.size() <= kMostNameBytes) return name;
  constexpr std::size_t kHashDigits = 8;
  return fmt::format("{}-{}", name.substr(0, kMostNameBytes),
                     content_hash(text).substr(0, kHashDigits));
}

}  // namespace

std::vector<GridPoint> grid_of(const std::vector<std::string>& arguments) {
  std::vector<GridAxis> axes;
  std::size_t points = 1;
  for (const std::string& argument : arguments) {
    axes.push_back(axis_of(argument));
    const auto same = [&](const GridAxis& one) { return one.key == axes.back().key; };
    if (std::ranges::count_if(axes, same) > 1) {
      fail(ErrorCode::kInvalidArgument, "{} is given twice; list its values behind one",
           axes.back().key);
    }
    points *= axes.back().values.size();
    if (points > kMostPoints) {
      fail(ErrorCode::kInvalidArgument, "the sweep has more than {} runs; list fewer values",
           kMostPoints);
    }
  }
  const auto shown_key = [&](const GridAxis& axis) {
    const auto same = [&](const GridAxis& one) {
      return one.values.size() > 1 && last_part(one.key) == last_part(axis.key);
    };
    return std::ranges::count_if(axes, same) > 1 ? axis.key : last_part(axis.key);
  };
  std::vector<GridPoint> grid;
  for (std::size_t i = 0; i < points; ++i) {
    GridPoint point;
    std::vector<std::string> parts;
    std::size_t rest = points;
    for (const GridAxis& axis : axes) {
      rest /= axis.values.size();
      const std::string& value = axis.values[i / rest % axis.values.size()];
      point.settings.push_back(axis.key + "=" + value);
      if (axis.values.size() > 1) parts.push_back(shown_key(axis) + "=" + value);
    }
    point.name = parts.empty() ? "run" : point_name(fmt::format("{}", fmt::join(parts, ",")));
    grid.push_back(std::move(point));
  }
  return grid;
}

}  // namespace lockstep::cli
