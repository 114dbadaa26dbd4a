// The report of the generation bench: a table for people, an array of objects for programs.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/text/units.h"
#include "lockstep/bench/generate/bench_generate.h"
#include "lockstep/bench/statistics.h"

namespace lockstep::bench {
namespace {

constexpr std::string_view kOurs = "lockstep";

double all_seconds(const GenerateResult& result) {
  return result.median_prompt() + result.median_seconds();
}

// New tokens by the time of prompt and new tokens together.
double tokens_per_second(const GenerateWork& work, const GenerateResult& result) {
  return static_cast<double>(work.batch * work.tokens) / all_seconds(result);
}

// Of a step, which has a token of every text. The first new token comes with the prompt.
double seconds_per_token(const GenerateWork& work, const GenerateResult& result) {
  return result.median_seconds() / static_cast<double>(std::max<std::int64_t>(1, work.tokens - 1));
}

const GenerateResult* fastest_peer(const std::vector<GenerateResult>& results) {
  const GenerateResult* best = nullptr;
  for (const GenerateResult& one : results) {
    if (one.implementation == kOurs || one.seconds.empty()) continue;
    if (best == nullptr || all_seconds(one) < all_seconds(*best)) best = &one;
  }
  return best;
}

}  // namespace

double GenerateResult::median_prompt() const { return quantile(prompt_seconds, 0.5); }
double GenerateResult::median_seconds() const { return quantile(seconds, 0.5); }

std::string generate_table(const GenerateWork& work, const std::vector<GenerateResult>& results) {
  std::string text = fmt::format(
      "{}, {}, {}batch {}, a prompt of {} and {} new tokens, {} thread{}, {} of parameters\n\n"
      "{:<16} {:>10} {:>10} {:>10} {:>12} {:>11}\n",
      work.model, work.precision, work.on_gpu ? "on a GPU, " : "", work.batch, work.prompt,
      work.tokens, work.threads, work.threads == 1 ? "" : "s",
      format_bytes(static_cast<double>(work.parameter_bytes)), "", "tokens/s", "prompt",
      "per token", "read", "peak");
  for (const GenerateResult& one : results) {
    if (one.seconds.empty()) {
      text += fmt::format("{:<16} {}\n", one.implementation, one.problem);
      continue;
    }
    const double each = seconds_per_token(work, one);
    text +=
        fmt::format("{:<16} {:>10.1f} {:>10} {:>10} {:>7.1f} GB/s {:>11}\n", one.implementation,
                    tokens_per_second(work, one), format_seconds(one.median_prompt()),
                    format_seconds(each), static_cast<double>(work.parameter_bytes) / each / 1e9,
                    format_bytes(static_cast<double>(one.peak_bytes)));
  }
  const auto ours = std::find_if(results.begin(), results.end(), [](const GenerateResult& one) {
    return one.implementation == kOurs && !one.seconds.empty();
  });
  if (ours == results.end()) return text;
  text += fmt::format("\nlockstep planned {}\n",
                      format_bytes(static_cast<double>(ours->planned_bytes)));
  for (const GenerateResult& one : results) {
    if (one.implementation == kOurs || one.seconds.empty()) continue;
    text += fmt::format("lockstep by {}: {:.2f} times the tokens/s{}\n", one.implementation,
                        tokens_per_second(work, *ours) / tokens_per_second(work, one),
                        &one == fastest_peer(results) ? "  (the fastest peer)" : "");
  }
  return text;
}

std::string generate_json(const GenerateWork& work, const std::vector<GenerateResult>& results) {
  using OrderedJson = nlohmann::ordered_json;
  OrderedJson array = OrderedJson::array();
  for (const GenerateResult& one : results) {
    OrderedJson object{{"implementation", one.implementation},
                       {"version", one.version},
                       {"model", work.model},
                       {"precision", work.precision},
                       {"device", work.on_gpu ? "cuda" : "cpu"},
                       {"batch", work.batch},
                       {"prompt", work.prompt},
                       {"tokens", work.tokens},
                       {"threads", work.threads},
                       {"parameter_bytes", work.parameter_bytes}};
    const auto where_measured = [&](double value) {
      return one.seconds.empty() ? OrderedJson() : OrderedJson(value);
    };
    object["tokens_per_s"] = where_measured(one.seconds.empty() ? 0 : tokens_per_second(work, one));
    object["seconds_per_token"] =
        where_measured(one.seconds.empty() ? 0 : seconds_per_token(work, one));
    object["prompt_samples"] = one.prompt_seconds;
    object["samples"] = one.seconds;
    object["peak_bytes"] = where_measured(static_cast<double>(one.peak_bytes));
    object["planned_bytes"] =
        one.planned_bytes > 0 ? OrderedJson(one.planned_bytes) : OrderedJson();
    if (!one.problem.empty()) object["problem"] = one.problem;
    array.push_back(std::move(object));
  }
  return array.dump(2) + "\n";
}

}  // namespace lockstep::bench
