// The report of the training bench: a table for people, an array of objects for programs.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/bench/train/bench_train.h"

namespace lockstep::bench {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kOurs = "lockstep";

double tokens_per_second(const TrainWork& work, const TrainResult& result) {
  return static_cast<double>(work.tokens()) / result.median_seconds();
}

double step_flops(const TrainWork& work, const TrainResult& result) {
  return work.flops / result.median_seconds();
}

// The fastest of those that are not ours.
const TrainResult* best_peer(const std::vector<TrainResult>& results) {
  const TrainResult* best = nullptr;
  for (const TrainResult& one : results) {
    if (one.implementation == kOurs || one.seconds.empty()) continue;
    if (best == nullptr || one.median_seconds() < best->median_seconds()) best = &one;
  }
  return best;
}

}  // namespace

double TrainResult::median_seconds() const { return quantile(seconds, 0.5); }

std::string train_table(const TrainWork& work, const std::vector<TrainResult>& results) {
  std::string text = fmt::format(
      "{}, {}, {} x {} tokens a step, recompute {} (ours), {} thread{}, {} a step\n\n"
      "{:<16} {:>10} {:>10} {:>10} {:>10} {:>11} {:>13} {:>13} {:>8}\n",
      work.model, work.precision, work.batch, work.sequence, work.recompute, work.threads,
      work.threads == 1 ? "" : "s", format_si(work.flops, "FLOP"), "", "tokens/s", "step", "p10",
      "p90", "peak", "step FLOP/s", "GEMM FLOP/s", "share");
  for (const TrainResult& one : results) {
    if (one.seconds.empty()) {
      text += fmt::format("{:<16} {}\n", one.implementation, one.problem);
      continue;
    }
    const double rate = step_flops(work, one);
    text += fmt::format(
        "{:<16} {:>10.1f} {:>10} {:>10} {:>10} {:>11} {:>13} {:>13} {:>8}\n", one.implementation,
        tokens_per_second(work, one), format_seconds(one.median_seconds()),
        format_seconds(quantile(one.seconds, 0.1)), format_seconds(quantile(one.seconds, 0.9)),
        one.peak_bytes > 0 ? format_bytes(static_cast<double>(one.peak_bytes)) : "-",
        format_si(rate, "FLOP"), one.gemm_flops > 0 ? format_si(one.gemm_flops, "FLOP") : "-",
        one.gemm_flops > 0 ? fmt::format("{:.1f} %", 100 * rate / one.gemm_flops) : "-");
  }
  const auto ours = std::find_if(results.begin(), results.end(), [](const TrainResult& one) {
    return one.implementation == kOurs && !one.seconds.empty();
  });
  if (ours == results.end()) return text;
  if (ours->planned_bytes > 0) {
    text += fmt::format("\nlockstep planned {} ({} bytes)\n",
                        format_bytes(static_cast<double>(ours->planned_bytes)),
                        format_count(ours->planned_bytes));
  }
  for (const TrainResult& one : results) {
    if (one.implementation == kOurs || one.seconds.empty()) continue;
    text += fmt::format("against {:<16} {:.2f} x its tokens/s", one.implementation,
                        one.median_seconds() / ours->median_seconds());
    if (ours->peak_bytes > 0 && one.peak_bytes > 0) {
      text += fmt::format(", {:.2f} x its peak memory", static_cast<double>(ours->peak_bytes) /
                                                            static_cast<double>(one.peak_bytes));
    }
    text += &one == best_peer(results) ? "  (the fastest peer)\n" : "\n";
  }
  return text;
}

std::string profile_table(const StepProfile& profile) {
  if (profile.operations.empty()) return "";
  std::size_t width = 0;
  for (const OpTime& one : profile.operations) width = std::max(width, one.operation.size());
  std::string text =
      fmt::format("\none more step, by its operations\n{:<{}} {:>7} {:>10} {:>8} {:>13}\n", "",
                  width, "calls", "time", "share", "rate");
  double told = 0;
  const auto share = [&](double seconds) {
    return fmt::format("{:.1f} %", 100 * seconds / profile.seconds);
  };
  for (const OpTime& one : profile.operations) {
    told += one.seconds;
    text += fmt::format("{:<{}} {:>7} {:>10} {:>8} {:>13}\n", one.operation, width, one.calls,
                        format_seconds(one.seconds), share(one.seconds),
                        one.flops > 0 ? format_si(one.flops / one.seconds, "FLOP/s") : "");
  }
  const double rest = std::max(0.0, profile.seconds - told);
  text += fmt::format("{:<{}} {:>7} {:>10} {:>8}\n", "between them", width, "",
                      format_seconds(rest), share(rest));
  return text + fmt::format("{:<{}} {:>7} {:>10}\n", "the step", width, "",
                            format_seconds(profile.seconds));
}

std::string train_json(const TrainWork& work, const std::vector<TrainResult>& results) {
  OrderedJson array = OrderedJson::array();
  for (const TrainResult& one : results) {
    OrderedJson object{{"implementation", one.implementation},
                       {"version", one.version},
                       {"model", work.model},
                       {"precision", work.precision},
                       {"batch", work.batch},
                       {"seq", work.sequence},
                       {"threads", work.threads},
                       {"flops_per_step", work.flops}};
    if (one.implementation == kOurs) object["recompute"] = work.recompute;
    const bool measured = !one.seconds.empty();
    object["tokens_per_s"] = measured ? OrderedJson(tokens_per_second(work, one)) : OrderedJson();
    object["step_seconds"] = measured ? OrderedJson(one.median_seconds()) : OrderedJson();
    object["samples"] = one.seconds;
    object["peak_bytes"] = one.peak_bytes > 0 ? OrderedJson(one.peak_bytes) : OrderedJson();
    object["planned_bytes"] =
        one.planned_bytes > 0 ? OrderedJson(one.planned_bytes) : OrderedJson();
    object["gemm_flops"] = one.gemm_flops > 0 ? OrderedJson(one.gemm_flops) : OrderedJson();
    object["step_flops"] = measured ? OrderedJson(step_flops(work, one)) : OrderedJson();
    object["first_loss"] = one.first_loss;
    object["last_loss"] = one.last_loss;
    if (!one.profile.operations.empty()) {
      OrderedJson operations = OrderedJson::array();
      for (const OpTime& op : one.profile.operations) {
        operations.push_back({{"operation", op.operation},
                              {"calls", op.calls},
                              {"seconds", op.seconds},
                              {"flops", op.flops}});
      }
      object["profile"] = {{"step_seconds", one.profile.seconds},
                           {"operations", std::move(operations)}};
    }
    if (!one.problem.empty()) object["problem"] = one.problem;
    array.push_back(std::move(object));
  }
  return array.dump(2) + "\n";
}

}  // namespace lockstep::bench
