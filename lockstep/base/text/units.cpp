#include "lockstep/base/text/units.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr double kKi = 1024.0;
constexpr Unit kByteUnits[] = {{"", 1},
                               {"k", 1e3},
                               {"K", 1e3},
                               {"M", 1e6},
                               {"G", 1e9},
                               {"T", 1e12},
                               {"P", 1e15},
                               {"Ki", kKi},
                               {"Mi", kKi* kKi},
                               {"Gi", kKi* kKi* kKi},
                               {"Ti", kKi* kKi* kKi* kKi}};
constexpr Unit kTimeUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"ms", 1e-3},
                               {"s", 1},     {"min", 60},  {"h", 3600}};

// The number at the front of `text`; what follows it stays in `text`, without spaces.
double take_number(std::string_view& text, std::string_view whole, std::string_view example) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value >= 0) || std::isinf(value)) {
    fail(ErrorCode::kInvalidArgument, "'{}' does not start with a number; write it like {}", whole,
         example);
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  while (text.starts_with(' ')) text.remove_prefix(1);
  return value;
}

template <std::size_t N>
double unit_factor(std::string_view unit, const Unit (&units)[N], std::string_view whole,
                   std::string_view example) {
  for (const Unit& candidate : units) {
    if (candidate.name == unit) return candidate.factor;
  }
  fail(ErrorCode::kInvalidArgument, "'{}' has the unknown unit '{}'; write it like {}", whole, unit,
       example);
}

std::string format_scaled(double value, const Unit* units, std::size_t count,
                          std::string_view suffix) {
  std::size_t best = 0;
  while (best + 1 < count && value >= units[best + 1].factor * 0.99995) ++best;
  const double scaled = value / units[best].factor;
  const int decimals = scaled >= 100 || scaled == std::floor(scaled) ? 0 : scaled >= 10 ? 1 : 2;
  return fmt::format("{:.{}f} {}{}", scaled, decimals, units[best].name, suffix);
}

}  // namespace

std::size_t parse_bytes(std::string_view text) {
  constexpr std::string_view kExample = "64KiB or 128Mi";
  std::string_view rest = text;
  const double value = take_number(rest, text, kExample);
  if (rest.ends_with('B')) rest.remove_suffix(1);
  const double bytes = value * unit_factor(rest, kByteUnits, text, kExample);
  if (bytes >= 0x1p63) {
    fail(ErrorCode::kInvalidArgument, "'{}' is more than any memory has; write it like {}", text,
         kExample);
  }
  // "1.1K" is 1100, though its product is a bit more or less.
  const double nearest = std::round(bytes);
  const bool is_whole =
      std::abs(bytes - nearest) <= 4 * std::numeric_limits<double>::epsilon() * bytes;
  if (!is_whole && rest.empty()) {
    fail(ErrorCode::kInvalidArgument, "'{}' is not a whole number of bytes; write it like {}", text,
         kExample);
  }
  return static_cast<std::size_t>(is_whole ? nearest : std::floor(bytes));
}

double parse_seconds(std::string_view text) {
  constexpr std::string_view kExample = "5us, 1.5ms or 30s";
  std::string_view rest = text;
  const double value = take_number(rest, text, kExample);
  return value * unit_factor(rest, kTimeUnits, text, kExample);
}

double parse_bytes_per_second(std::string_view text) {
  constexpr std::string_view kExample = "100Gbit or 12.5GB";
  std::string_view rest = text;
  const double value = take_number(rest, text, kExample);
  if (rest.ends_with("/s")) rest.remove_suffix(2);
  if (rest.ends_with("bit")) {
    rest.remove_suffix(3);
    return value * unit_factor(rest, kByteUnits, text, kExample) / 8;
  }
  if (!rest.ends_with('B')) {
    fail(ErrorCode::kInvalidArgument, "'{}' says neither bits nor bytes; write it like {}", text,
         kExample);
  }
  rest.remove_suffix(1);
  return value * unit_factor(rest, kByteUnits, text, kExample);
}

std::vector<std::size_t> parse_byte_range(std::string_view text, std::size_t factor) {
  std::vector<std::size_t> sizes;
  if (const auto dots = text.find(".."); dots != std::string_view::npos) {
    const std::size_t first = parse_bytes(text.substr(0, dots));
    const std::size_t last = parse_bytes(text.substr(dots + 2));
    if (first == 0 || first > last) {
      fail(ErrorCode::kInvalidArgument,
           "'{}' is not a range of sizes; write it from small to large, like 8..128Mi", text);
    }
    for (std::size_t size = first; size < last; size *= factor) sizes.push_back(size);
    sizes.push_back(last);
    return sizes;
  }
  while (true) {
    const auto comma = text.find(',');
    sizes.push_back(parse_bytes(text.substr(0, comma)));
    if (comma == std::string_view::npos) return sizes;
    text.remove_prefix(comma + 1);
  }
}

std::string format_bytes(double bytes) {
  constexpr Unit kUnits[] = {{"", 1},
                             {"Ki", kKi},
                             {"Mi", kKi * kKi},
                             {"Gi", kKi * kKi * kKi},
                             {"Ti", kKi * kKi * kKi * kKi}};
  return format_scaled(bytes, kUnits, std::size(kUnits), "B");
}

std::string format_seconds(double seconds) {
  constexpr Unit kUnits[] = {{"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}, {"", 1}};
  return format_scaled(seconds, kUnits, std::size(kUnits), "s");
}

std::string format_bytes_per_second(double rate) {
  constexpr Unit kUnits[] = {{"", 1}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}};
  return format_scaled(rate, kUnits, std::size(kUnits), "B/s");
}

std::string format_duration(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 60 * kMinute;
  constexpr double kDay = 24 * kHour;
  constexpr double kLongest = 1e5 * kDay;  // also where there is no end in sight
  if (!(seconds >= 0) || seconds > kLongest) return "ages";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const auto two = [&](double large, char large_name, double small, char small_name) {
    const auto smalls = static_cast<long long>(std::round(seconds / small));
    const auto each = static_cast<long long>(large / small);
    return fmt::format("{}{} {:02}{}", smalls / each, large_name, smalls % each, small_name);
  };
  if (seconds < kMinute - 0.5) return fmt::format("{:.0f}s", seconds);
  if (seconds < kHour - 0.5) return two(kMinute, 'm', 1, 's');
  if (seconds < kDay - kMinute / 2) return two(kHour, 'h', kMinute, 'm');
  return two(kDay, 'd', kHour, 'h');
}

}  // namespace lockstep
