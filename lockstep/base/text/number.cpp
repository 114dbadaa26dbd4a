#include "lockstep/base/text/number.h"

#include <charconv>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

constexpr double kLargestCount = 1e15;  // every whole number up to it is a double
constexpr double kSmallestNumber = 1e-30;
constexpr double kLargestNumber = 1e30;
constexpr double kThousand = 1000;

struct Suffix {
  char letter;
  double factor;
};
constexpr Suffix kSuffixes[] = {{'k', 1e3}, {'K', 1e3},  {'M', 1e6}, {'G', 1e9},
                                {'B', 1e9}, {'T', 1e12}, {'P', 1e15}};

std::string format_steps(double value, std::span<const std::string_view> steps,
                         std::string_view unit) {
  std::size_t step = 0;
  // What would round to 1000 is 1 of the next step.
  while (step + 1 < steps.size() && value >= kThousand - 0.5) {
    value /= kThousand;
    ++step;
  }
  const int decimals = value >= 99.95 || value == std::floor(value) ? 0 : 1;
  return fmt::format("{:.{}f} {}{}", value, decimals, steps[step], unit);
}

}  // namespace

double parse_number(std::string_view what, std::string_view text) {
  double value = 0;
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, value);
  if (error == std::errc() && last - end == 1) {
    for (const Suffix& suffix : kSuffixes) {
      if (*end != suffix.letter) continue;
      value *= suffix.factor;
      ++end;
      break;
    }
  }
  if (error != std::errc() || end != last || !(value > 0)) {
    fail(ErrorCode::kInvalidArgument,
         "{}: '{}' is not a number above zero; write it like 12, 7.5e9 or 300B", what, text);
  }
  if (value < kSmallestNumber || value > kLargestNumber) {
    fail(ErrorCode::kInvalidArgument, "{}: '{}' is too large; write it like 12 or 7.5e9", what,
         text);
  }
  return value;
}

std::uint64_t parse_count(std::string_view what, std::string_view text) {
  const double value = parse_number(what, text);
  // 7.3B times 10^9 may miss a whole number by the last bit.
  const double whole = std::round(value);
  if (whole < 1 || std::abs(value - whole) > whole * 1e-15 || whole > kLargestCount) {
    fail(ErrorCode::kInvalidArgument,
         "{}: '{}' is not a whole number from 1 to 10^15; write it like 12, 7.5e9 or 300B", what,
         text);
  }
  return static_cast<std::uint64_t>(whole);
}

std::string format_count(std::uint64_t count) {
  std::string text = fmt::to_string(count);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, 1, ',');
  return text;
}

std::string format_words(double number) {
  constexpr std::string_view kSteps[] = {"",        "thousand", "million",
                                         "billion", "trillion", "quadrillion"};
  std::string text = format_steps(number, kSteps, "");
  if (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string format_si(double value, std::string_view unit) {
  constexpr std::string_view kSteps[] = {"", "k", "M", "G", "T", "P", "E", "Z", "Y"};
  return format_steps(value, kSteps, unit);
}

double as_written(float value) { return std::stod(fmt::format("{}", value)); }

}  // namespace lockstep
