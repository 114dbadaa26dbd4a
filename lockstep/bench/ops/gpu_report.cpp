#include <fmt/format.h>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/ops/gpu.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench {
namespace {

constexpr double kTera = 1e12;
constexpr double kPeerBar = 1.0;  // as fast as the peer

bool has_bar(const OpTime& time) { return !time.samples.empty() && time.bar_percent > 0; }
bool has_peer(const OpTime& time) { return !time.samples.empty() && !time.peer_samples.empty(); }

bool meets_bar(const OpTime& time, const Floor& ceiling) {
  return time.percent_of_copy(ceiling) >= time.bar_percent;
}
bool meets_peer(const OpTime& time) { return time.speed_up() >= kPeerBar; }

std::string bar_text(const OpTime& time, const Floor& ceiling) {
  if (!has_bar(time)) return "-";
  return fmt::format("{:.0f} % {}", time.bar_percent, meets_bar(time, ceiling) ? "met" : "MISSED");
}

std::string peer_text(const OpTime& time) {
  if (!has_peer(time)) return time.peer_problem.empty() ? "-" : "failed";
  return fmt::format("{} {:.2f}x", format_seconds(quantile(time.peer_samples, 0.5)),
                     time.speed_up());
}

}  // namespace

std::string gpu_heading(const std::string& implementation, const std::string& peer,
                        const Floor& ceiling) {
  std::string text =
      fmt::format("operations by {}\nceilings: a copy of {} reads and writes {:.2f} TB/s",
                  implementation, format_bytes(static_cast<double>(ceiling.streaming.array_bytes)),
                  ceiling.streaming.copy / kTera);
  for (const auto& [dtype, peak] : ceiling.peaks) {
    text += fmt::format("; {} in {} runs at {:.1f} TFLOP/s", peak.instruction, name(dtype),
                        peak.flops / kTera);
  }
  if (!peer.empty()) text += fmt::format("\npeer of attention: {}, by turns", peer);
  return text + fmt::format(
                    "\n\n{:<23} {:<5} {:>8} {:>8} {:>8} {:>8} {:>6} {:>10} {:<8} {:<12} "
                    "{:<15} {}\n",
                    "operation", "type", "median", "p10", "p90", "TFLOP/s", "TB/s", "of ceiling",
                    "", "bar", "peer", "case");
}

std::string gpu_line(const OpTime& time, const Floor& ceiling) {
  if (time.samples.empty()) {
    return fmt::format("{:<23} {:<5} FAILED: {}: {}\n", time.op, name(time.dtype), time.case_name,
                       time.problem);
  }
  const double median = time.median();
  std::string text = fmt::format(
      "{:<23} {:<5} {:>8} {:>8} {:>8} {:>8} {:>6.2f} {:>8.1f} % {:<8} {:<12} {:<15} {}\n", time.op,
      name(time.dtype), format_seconds(median), format_seconds(quantile(time.samples, 0.1)),
      format_seconds(quantile(time.samples, 0.9)),
      time.flops > 0 ? fmt::format("{:.1f}", time.flops / median / kTera) : "-",
      time.bytes / median / kTera, time.percent_of_floor(ceiling),
      time.is_compute_bound(ceiling) ? "compute" : "memory", bar_text(time, ceiling),
      peer_text(time), time.case_name);
  if (!time.peer_problem.empty()) text += fmt::format("  peer: {}\n", time.peer_problem);
  if (has_peer(time) && !time.peer_note.empty()) {
    text += fmt::format("  peer: {}\n", time.peer_note);
  }
  return text;
}

std::string gpu_bars(const std::vector<OpTime>& times, const Floor& ceiling) {
  std::size_t bars = 0;
  std::string missed;
  std::size_t count = 0;
  for (const OpTime& time : times) {
    if (has_bar(time)) {
      ++bars;
      if (!meets_bar(time, ceiling)) {
        ++count;
        missed += fmt::format("  {} {}, {}: {:.1f} % of the copy, bar {:.0f} %\n", time.op,
                              name(time.dtype), time.case_name, time.percent_of_copy(ceiling),
                              time.bar_percent);
      }
    }
    if (has_peer(time)) {
      ++bars;
      if (!meets_peer(time)) {
        ++count;
        missed += fmt::format("  {} {}, {}: {:.2f}x the peer's speed, bar {:.1f}x\n", time.op,
                              name(time.dtype), time.case_name, time.speed_up(), kPeerBar);
      }
    }
  }
  if (bars == 0) return "";
  return fmt::format("\n{} of {} met{}\n{}", bars - count, counted(bars, "bar"),
                     count == 0 ? "" : "; missed:", missed);
}

}  // namespace lockstep::bench
