// Parses and formats sizes, times and rates.
//
// Bytes: "8", "64KiB", "1.73 Gi", "10kB" (binary with i; B may be left out), down to whole bytes.
// Time: "5us", "1.5ms", "30s", "5min". Rates: "100Gbit" (bits per second, decimal), "12.5GB" or
// "10GiB" (bytes per second); a final "/s" may be left out.
// Parsing throws Error(kInvalidArgument) that quotes the text and shows an example.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

std::size_t parse_bytes(std::string_view text);
double parse_seconds(std::string_view text);
double parse_bytes_per_second(std::string_view text);

// "8..128Mi" from 8 to 128 MiB by factors of `factor` (the end is always included), "1Ki,3Ki" a
// list, "64Ki" one.
std::vector<std::size_t> parse_byte_range(std::string_view text, std::size_t factor);

std::string format_bytes(double bytes);            // "8 B", "64 KiB", "1.5 GiB"
std::string format_seconds(double seconds);        // "6.7 us", "17.6 ms"
std::string format_bytes_per_second(double rate);  // "12.3 GB/s"
std::string format_duration(double seconds);       // "4.2s", "12m 34s", "1h 02m", "2d 03h"

}  // namespace lockstep
