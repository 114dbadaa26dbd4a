// Parses and formats counts.
//
// "12", "7.5e9", "300B": a number with an optional decimal suffix: K, M, G or B (10^9), T, P.
// Parsing throws Error(kInvalidArgument) that begins with `what` (say, the flag), quotes the text
// and shows an example.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// From 10^-30 to 10^30, so that products and quotients of a few stay in range.
double parse_number(std::string_view what, std::string_view text);
// Whole, from 1 up to 10^15.
std::uint64_t parse_count(std::string_view what, std::string_view text);

std::string format_count(std::uint64_t count);  // "124,439,808"
std::string format_words(double number);        // "124 million", "7.5 billion"
// Decimal prefixes, one decimal below 100: "31.4 GB", "120 GB", "315 ZFLOP".
std::string format_si(double value, std::string_view unit);

// The double with the shortest decimal text of the float: 1e-05 for 1e-5f, not 9.99999974738e-06.
double as_written(float value);

}  // namespace lockstep
