// The answer of `lockstep plan` for people: rounded with a unit, and the exact number beside it.
#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/plan/budget.h"
#include "lockstep/cli/plan/question.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using plan::Count;
using plan::Recompute;

constexpr int kGpusPerMachine = 8;

std::string giga(Count bytes) { return format_si(static_cast<double>(bytes), "B"); }
std::string flop(double flops) { return format_si(flops, "FLOP"); }
// Doubles above 2^53 are no longer exact; there the rounded number has to do.
std::string exact(double flops) {
  return flops <= 0x1p53 ? format_count(static_cast<Count>(flops)) : fmt::format("{:.4e}", flops);
}

std::string heading(const PlanQuestion& question) {
  if (!question.shape) {
    return fmt::format("a model of {} parameters ({})\n", format_count(question.parameters),
                       format_words(static_cast<double>(question.parameters)));
  }
  return describe(*question.shape);
}

std::string parameters_text(const PlanQuestion& question) {
  if (!question.shape) return "";
  const plan::Parameters parts = plan::count_parameters(*question.shape);
  TextTable table("lrr");
  const auto row = [&](std::string part, Count count) {
    if (count == 0) return;
    table.row({std::move(part), format_count(count),
               fmt::format("{:.1f} %", 100.0 * static_cast<double>(count) /
                                           static_cast<double>(parts.total()))});
  };
  row("token embedding", parts.embedding);
  row("positions", parts.positions);
  row("token types", parts.token_types);
  row("attention", parts.attention);
  row("feed-forward", parts.feed_forward);
  row("norms", parts.norms);
  row("head", parts.head);
  table.row({"P", format_count(parts.total()), format_words(static_cast<double>(parts.total()))});
  return "\nparameters\n" + table.text();
}

std::string states_text(const PlanQuestion& question) {
  const plan::StateBytes each = plan::bytes_per_parameter(question.precision);
  const plan::StateBytes all = plan::state_bytes(question.parameters, question.precision, 0, 1);
  TextTable table("lrrr");
  const auto row = [&](std::string part, Count factor, Count bytes) {
    if (factor == 0) return;
    table.row({std::move(part), fmt::format("{}P", factor), giga(bytes), format_count(bytes)});
  };
  row("parameters", each.parameters, all.parameters);
  row("gradients", each.gradients, all.gradients);
  row("master copy", each.master, all.master);
  row("first moment", each.first_moment, all.first_moment);
  row("second moment", each.second_moment, all.second_moment);
  row("optimizer", each.optimizer(), all.optimizer());
  row("all", each.total(), all.total());
  return fmt::format("\nmodel states, {} with Adam: bytes\n{}", name(question.precision),
                     table.text());
}

std::string with_what(const PlanQuestion& question) {
  return question.shape ? "states and activations, by recompute" : "states alone";
}

std::string ranks_text(const PlanQuestion& question) {
  TextTable table("rrlrrrr");
  std::vector<std::string> titles = {"ranks", "ZeRO", "formula", "per rank",
                                     "bytes", "sent", "in bytes"};
  std::string title = "\nmodel states of a rank, and what it sends in a step";
  if (question.memory) {
    title += fmt::format(";\nfits {}: {}", budget_text(*question.memory), with_what(question));
    for (const Recompute mode : recompute_modes(question)) {
      titles.emplace_back(question.shape ? name(mode) : "fits");
    }
  }
  table.row(std::move(titles));
  for (const Count ranks : question.ranks) {
    for (int stage = 0; stage < plan::kZeroStages; ++stage) {
      const plan::StateBytes states =
          plan::state_bytes(question.parameters, question.precision, stage, ranks);
      std::vector<std::string> row = {
          fmt::to_string(ranks),
          fmt::to_string(stage),
          plan::state_formula(question.precision, stage),
          giga(states.total()),
          format_count(states.total()),
          fmt::format("{}P(N-1)/N", plan::traffic_multiple(stage)),
          giga(plan::traffic_bytes(question.parameters, question.precision, stage, ranks))};
      if (question.memory) {
        for (const Recompute mode : recompute_modes(question)) {
          row.emplace_back(fits(question, states, mode, *question.memory) ? "yes" : "no");
        }
      }
      table.row(std::move(row));
    }
  }
  return title + "\n" + table.text();
}

std::string fewest_ranks_text(const PlanQuestion& question) {
  if (!question.memory) return "";
  TextTable table("rrrr");
  std::vector<std::string> titles = {"ZeRO"};
  for (const Recompute mode : recompute_modes(question)) {
    titles.emplace_back(question.shape ? name(mode) : "ranks");
  }
  table.row(std::move(titles));
  for (int stage = 0; stage < plan::kZeroStages; ++stage) {
    std::vector<std::string> row = {fmt::to_string(stage)};
    for (const Recompute mode : recompute_modes(question)) {
      const auto ranks = fewest_ranks(question, stage, mode, *question.memory);
      row.push_back(ranks ? format_count(*ranks) : "never");
    }
    table.row(std::move(row));
  }
  return fmt::format("\nfewest ranks that fit {}: {}\n{}", budget_text(*question.memory),
                     with_what(question), table.text());
}

// The activations of a layer are the same at every stage: activations_text().
std::string parts_text(const PlanQuestion& question) {
  TextTable table("rrrrr");
  table.row({"ranks", "ZeRO", "parameters", "gradients", "optimizer"});
  for (const Count ranks : question.ranks) {
    for (int stage = 0; stage < plan::kZeroStages; ++stage) {
      const plan::StateBytes states =
          plan::state_bytes(question.parameters, question.precision, stage, ranks);
      table.row({fmt::to_string(ranks), fmt::to_string(stage), giga(states.parameters),
                 giga(states.gradients), giga(states.optimizer())});
    }
  }
  return "\nmodel states of a rank, by part\n" + table.text();
}

std::string activations_text(const PlanQuestion& question) {
  if (!question.shape) return "";
  const plan::TokenFlops flops = plan::count_flops(*question.shape, question.sequence);
  TextTable table("lrrrrr");
  table.row({"recompute", "a layer", "bytes", "all layers", "bytes", "FLOPs"});
  for (const Recompute mode : plan::kFormulaRecompute) {
    const Count layer = plan::activation_bytes(*question.shape, question.sequence, question.batch,
                                               question.precision, mode);
    const Count all = activations(question, mode);
    table.row({std::string(name(mode)), giga(layer), format_count(layer), giga(all),
               format_count(all),
               fmt::format("+{:.1f} %", 100 * flops.recomputed(mode) / flops.total())});
  }
  return fmt::format(
      "\nactivations kept for backward, batch {} x {} tokens, {}{}\n{}"
      "  attention: scores, softmax and weighted sum again; a run never keeps them\n",
      question.batch, question.sequence, name(question.precision),
      plan::activation_formula_is_exact(*question.shape)
          ? ""
          : "\n(the formula is for a feed-forward of 4h without grouped heads: for "
            "this model an estimate)",
      table.text());
}

std::string flops_text(const PlanQuestion& question) {
  const double parameters = static_cast<double>(question.parameters);
  TextTable table("llrr");
  const auto row = [&](std::string what, std::string formula, double flops) {
    table.row({std::move(what), std::move(formula), flop(flops), exact(flops)});
  };
  row("a token, rule of thumb", "6P", plan::rule_of_thumb_flops(parameters, 1));
  if (!question.shape) return "\nFLOPs\n" + table.text();
  const plan::TokenFlops flops = plan::count_flops(*question.shape, question.sequence);
  const Count tokens = plan::product({question.batch, question.sequence});
  row("a token's attention", "12lsh", 3 * flops.attention);
  row("a token, counted", "6M + 12lsh", flops.total());
  row("  forward", "2M + 4lsh", flops.forward());
  row("  backward", "4M + 8lsh", flops.backward());
  row(fmt::format("a step of {} tokens", format_count(tokens)), "counted",
      static_cast<double>(tokens) * flops.total());
  return fmt::format("\nFLOPs; M = {} weights are multiplied with every token\n{}",
                     exact(flops.weights()), table.text());
}

std::string answer_line(const PlanQuestion& question, std::string_view what, double flops) {
  std::string text = fmt::format("  {}: {} = {:.4g} FLOP\n", what, flop(flops), flops);
  if (question.days) {
    const double gpus = plan::gpus_needed(flops, *question.days, question.flops_per_gpu);
    const Count whole = plan::whole_gpus(gpus);
    text += fmt::format("    in {:g} days at {}/s each: {:.1f} GPUs, so {} ({} nodes of {})\n",
                        *question.days, flop(question.flops_per_gpu), gpus, format_count(whole),
                        format_count(plan::divide_up(whole, kGpusPerMachine)), kGpusPerMachine);
  }
  if (question.gpus) {
    text +=
        fmt::format("    on {} GPUs at {}/s each: {:.1f} days\n",
                    format_count(static_cast<Count>(*question.gpus)), flop(question.flops_per_gpu),
                    plan::days_needed(flops, *question.gpus, question.flops_per_gpu));
  }
  return text;
}

std::string training_text(const PlanQuestion& question) {
  if (!question.tokens) return "";
  const double tokens = *question.tokens;
  const double parameters = static_cast<double>(question.parameters);
  std::string text = fmt::format("\ntraining on T = {} tokens\n", format_words(tokens));
  text += answer_line(question, fmt::format("6PT = 6 x {:.4g} x {:.4g}", parameters, tokens),
                      plan::rule_of_thumb_flops(parameters, tokens));
  if (question.shape) {
    text += answer_line(question, "(6M + 12lsh)T",
                        plan::count_flops(*question.shape, question.sequence).total() * tokens);
  }
  return text;
}

}  // namespace

std::string describe(const plan::ModelShape& shape) {
  const std::string kv_heads =
      shape.kv_heads == shape.heads ? "" : fmt::format(" ({} for keys and values)", shape.kv_heads);
  const std::string layers = shape.is_encoder_decoder()
                                 ? fmt::format("{} + {}", shape.layers, shape.decoder_layers)
                                 : fmt::to_string(shape.layers);
  const std::string experts =
      shape.has_experts()
          ? fmt::format(" in {} of {} experts", shape.experts_per_token, shape.experts)
          : "";
  const std::string window =
      shape.window > 0 ? fmt::format(" in windows of {}{}", shape.window,
                                     shape.parts().alternating ? " (every second layer)" : "")
                       : "";
  return fmt::format(
      "{}: family {}, {} layers, hidden size {}, {} heads{},\n"
      "feed-forward {}{}, vocabulary {}, {} positions{}, head {}, {} biases\n",
      shape.name, family_name(shape), layers, shape.hidden, shape.heads, kv_heads,
      shape.feed_forward, experts, shape.vocabulary, shape.positions, window, name(shape.head),
      shape.biases       ? "with"
      : shape.qkv_biases ? "query, key and value"
                         : "without");
}

std::string plan_text(const PlanQuestion& question) {
  return heading(question) + parameters_text(question) + states_text(question) +
         ranks_text(question) + fewest_ranks_text(question) + parts_text(question) +
         activations_text(question) + flops_text(question) + training_text(question);
}

}  // namespace lockstep::cli
