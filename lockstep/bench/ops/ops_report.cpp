#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/ops/bench_ops.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench {
namespace {

constexpr double kGiga = 1e9;
constexpr double kMicroseconds = 1e6;

}  // namespace

std::string ops_heading(const std::string& implementation, const Floor& floor) {
  std::string text =
      fmt::format("operations by {}\nthe machine's floor: memory streams at {} ({} on {})",
                  implementation, format_bytes_per_second(floor.streaming.best()),
                  floor.streaming.copy > floor.streaming.triad ? "copy" : "triad",
                  counted(static_cast<std::size_t>(floor.streaming.threads), "thread"));
  for (const auto& [dtype, peak] : floor.peaks) {
    text += fmt::format("; {} multiplies at {:.1f} GFLOP/s ({})", name(dtype), peak.flops / kGiga,
                        peak.instruction);
  }
  return text + fmt::format("\n\n{:<23} {:<5} {:>10} {:>10} {:>10} {:>9} {:>8} {:>9} {:<8} {}\n",
                            "operation", "type", "median", "p10", "p90", "GFLOP/s", "GB/s",
                            "of floor", "", "case");
}

std::string ops_line(const OpTime& time, const Floor& floor) {
  if (time.samples.empty()) {
    return fmt::format("{:<23} {:<5} FAILED: {}\n", time.op, name(time.dtype), time.problem);
  }
  const double median = time.median();
  return fmt::format("{:<23} {:<5} {:>10} {:>10} {:>10} {:>9} {:>8.2f} {:>7.0f} % {:<8} {}\n",
                     time.op, name(time.dtype), format_seconds(median),
                     format_seconds(quantile(time.samples, 0.1)),
                     format_seconds(quantile(time.samples, 0.9)),
                     time.flops > 0 ? fmt::format("{:.1f}", time.flops / median / kGiga) : "-",
                     time.bytes / median / kGiga, time.percent_of_floor(floor),
                     time.is_compute_bound(floor) ? "compute" : "memory", time.case_name);
}

std::string ops_json(const std::vector<OpTime>& times, const std::string& implementation,
                     const Floor& floor) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const OpTime& time : times) {
    nlohmann::ordered_json object{{"implementation", implementation},
                                  {"op", time.op},
                                  {"dtype", name(time.dtype)},
                                  {"case", time.case_name},
                                  {"threads", time.threads},
                                  {"flops", time.flops},
                                  {"bytes", time.bytes},
                                  {"streaming_bytes_per_s", floor.streaming.best()},
                                  {"peak_flops_per_s", floor.peaks.at(time.dtype).flops}};
    if (time.samples.empty()) {
      object["median_us"] = nullptr;
      object["problem"] = time.problem;
    } else {
      object["median_us"] = time.median() * kMicroseconds;
      object["p10_us"] = quantile(time.samples, 0.1) * kMicroseconds;
      object["p90_us"] = quantile(time.samples, 0.9) * kMicroseconds;
      object["samples"] = time.samples.size();
      object["flops_per_s"] = time.flops / time.median();
      object["bytes_per_s"] = time.bytes / time.median();
      object["bound"] = time.is_compute_bound(floor) ? "compute" : "memory";
      object["percent_of_floor"] = time.percent_of_floor(floor);
      if (time.bar_percent > 0) {
        object["percent_of_copy"] = time.percent_of_copy(floor);
        object["bar_percent_of_copy"] = time.bar_percent;
      }
      if (!time.peer_samples.empty()) {
        object["peer_median_us"] = quantile(time.peer_samples, 0.5) * kMicroseconds;
        object["speed_up"] = time.speed_up();
      }
      if (!time.peer_note.empty()) object["peer_note"] = time.peer_note;
      if (!time.peer_problem.empty()) object["peer_problem"] = time.peer_problem;
    }
    array.push_back(std::move(object));
  }
  return array.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::bench
