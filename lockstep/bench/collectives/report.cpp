#include "lockstep/bench/collectives/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench {
namespace {

std::string ratio_text(std::optional<double> ratio) {
  if (!ratio) return "-";
  return *ratio < 0.1 ? fmt::format("{:.1g}", *ratio) : fmt::format("{:.2f}", *ratio);
}

// "lockstep-symmetric   min 1.20 at 8 B, geomean 4.50 over 9 sizes"
std::string ratio_summary(std::span<const Measurement> table, const std::string& implementation,
                          std::optional<double> Measurement::*ratio, std::string_view rival) {
  std::vector<double> ratios;
  std::size_t worst_bytes = 0;
  bool all_right = true;
  for (const Measurement& one : table) {
    if (one.implementation.name != implementation || !one.unsupported.empty()) continue;
    all_right = all_right && one.correct();
    const std::optional<double> value = one.*ratio;
    if (!value) continue;
    if (ratios.empty() || *value < *std::min_element(ratios.begin(), ratios.end())) {
      worst_bytes = one.bytes;
    }
    ratios.push_back(*value);
  }
  if (ratios.empty()) return {};
  return fmt::format("  {:<24} against {}: geomean {:.2f}, min {:.2f} at {}, over {} size{}{}\n",
                     implementation, rival, geometric_mean(ratios),
                     *std::min_element(ratios.begin(), ratios.end()),
                     format_bytes(static_cast<double>(worst_bytes)), ratios.size(),
                     ratios.size() == 1 ? "" : "s", all_right ? "" : " (NOT ALL CORRECT)");
}

std::vector<std::string> own_implementations(std::span<const Measurement> table) {
  std::vector<std::string> names;
  for (const Measurement& one : table) {
    const std::string& name = one.implementation.name;
    if (one.implementation.is_peer) continue;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

// Stretches of sizes for which the same was chosen for the same reason, on one line each.
std::string choices(std::span<const Measurement> table, const std::string& implementation) {
  struct Stretch {
    std::size_t first;
    std::size_t last;
    const Measurement* chosen;
  };
  std::vector<Stretch> stretches;
  for (const Measurement& one : table) {
    if (one.implementation.name != implementation || one.algorithm.empty()) continue;
    if (!stretches.empty() && stretches.back().chosen->algorithm == one.algorithm) {
      stretches.back().last = one.bytes;
      stretches.back().chosen = &one;
    } else {
      stretches.push_back({one.bytes, one.bytes, &one});
    }
  }
  std::string text;
  for (const Stretch& stretch : stretches) {
    const std::string sizes =
        stretch.first == stretch.last
            ? format_bytes(static_cast<double>(stretch.first))
            : fmt::format("{} to {}", format_bytes(static_cast<double>(stretch.first)),
                          format_bytes(static_cast<double>(stretch.last)));
    text += fmt::format("  {:<24} {}: {}{}{}\n", implementation, sizes, stretch.chosen->algorithm,
                        stretch.chosen->why.empty() ? "" : ", ", stretch.chosen->why);
  }
  return text;
}

}  // namespace

std::string table_heading(Collective op, DType dtype, int ranks) {
  return fmt::format(
      "\n{} of {}{}, {}, {}\n{:>9}  {:<24} {:<18} {:>10} {:>10} {:>10} {:>12} {:>12} {:>8}\n",
      name(op), name(dtype), reduces(op) ? ", sum" : "",
      counted(static_cast<std::size_t>(ranks), "rank"), in_place(op) ? "in place" : "out of place",
      "size", "implementation", "algorithm", "median", "p10", "p90", "algorithm bw", "bus bw",
      "speed-up");
}

std::string table_lines(std::span<const Measurement> one_size) {
  std::string text;
  for (const Measurement& one : one_size) {
    const std::string size = format_bytes(static_cast<double>(one.bytes));
    if (!one.unsupported.empty()) {
      text += fmt::format("{:>9}  {:<24} {}\n", size, one.implementation.name, one.unsupported);
    } else if (!one.correct()) {
      text += fmt::format("{:>9}  {:<24} FAILED: {}\n", size, one.implementation.name,
                          one.problem.substr(0, one.problem.find('\n')));
    } else {
      text += fmt::format("{:>9}  {:<24} {:<18} {:>10} {:>10} {:>10} {:>12} {:>12} {:>8}\n", size,
                          one.implementation.name, one.algorithm, format_seconds(one.median()),
                          format_seconds(one.quantile(0.1)), format_seconds(one.quantile(0.9)),
                          format_bytes_per_second(one.algorithm_bandwidth()),
                          format_bytes_per_second(one.bus_bandwidth()),
                          ratio_text(one.ratio_to_fastest_peer));
    }
  }
  return text + "\n";
}

std::string summary(std::span<const Measurement> one_table) {
  std::string ratios;
  std::string chosen;
  for (const std::string& own : own_implementations(one_table)) {
    ratios += ratio_summary(one_table, own, &Measurement::ratio_to_fastest_peer,
                            "the fastest peer at each size");
    if (own == kTcp) {
      ratios += ratio_summary(one_table, own, &Measurement::ratio_to_fastest_gloo, "Gloo");
    }
    chosen += choices(one_table, own);
  }
  if (!ratios.empty()) ratios = "speed-up (peer's median / ours)\n" + ratios;
  if (!chosen.empty()) chosen = "chosen\n" + chosen;
  return ratios + chosen;
}

std::string streaming_share(std::span<const Measurement> one_table, const Streaming& streaming) {
  const Measurement* largest = nullptr;
  for (const Measurement& one : one_table) {
    if (one.implementation.name != kSymmetric || one.op != Collective::kAllReduce) continue;
    if (one.correct() && (largest == nullptr || one.bytes > largest->bytes)) largest = &one;
  }
  if (largest == nullptr) return {};
  // Buffers that fit into caches do not stream.
  const std::size_t buffers = largest->bytes * static_cast<std::size_t>(largest->ranks);
  if (buffers < streaming.array_bytes) return {};
  const double touched = 2.0 * static_cast<double>(largest->bytes) * largest->ranks;
  const double rate = touched / largest->median();
  return fmt::format(
      "  {} at {}: every rank reads and writes all of it, {} in {} = {}, {:.0f} % of the streaming "
      "bandwidth\n",
      kSymmetric, format_bytes(static_cast<double>(largest->bytes)), format_bytes(touched),
      format_seconds(largest->median()), format_bytes_per_second(rate),
      100 * rate / streaming.best());
}

std::string to_json(std::span<const Measurement> all) {
  constexpr double kMicroseconds = 1e6;
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Measurement& one : all) {
    if (!one.unsupported.empty()) continue;
    nlohmann::ordered_json object{{"implementation", one.implementation.name},
                                  {"op", name(one.op)},
                                  {"ranks", one.ranks},
                                  {"bytes", one.bytes},
                                  {"dtype", name(one.dtype)},
                                  {"algorithm", one.algorithm}};
    if (one.samples.empty()) {
      object["median_us"] = nullptr;
    } else {
      object["median_us"] = one.median() * kMicroseconds;
      object["p10_us"] = one.quantile(0.1) * kMicroseconds;
      object["p90_us"] = one.quantile(0.9) * kMicroseconds;
      object["algbw"] = one.algorithm_bandwidth();
      object["busbw"] = one.bus_bandwidth();
    }
    object["samples"] = one.samples.size();
    if (one.ratio_to_fastest_peer) object["ratio_to_fastest_peer"] = *one.ratio_to_fastest_peer;
    if (one.ratio_to_fastest_gloo) object["ratio_to_fastest_gloo"] = *one.ratio_to_fastest_gloo;
    object["correct"] = one.correct();
    if (!one.why.empty()) object["why"] = one.why;
    if (!one.problem.empty()) object["problem"] = one.problem;
    array.push_back(std::move(object));
  }
  return array.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::bench
