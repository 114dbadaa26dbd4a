#include "lockstep/train/run/memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/nn/memory/recompute_search.h"
#include "lockstep/train/memory/choice.h"
#include "lockstep/train/memory/run_plan.h"

namespace lockstep::train {
namespace {

std::string this_machine() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

std::size_t budget_of_all(const TrainOptions& options, const Ops& ops, RunGroup& group) {
  const std::string here = this_machine();
  const auto workers_here = std::ranges::count(group.texts(here), here);
  const auto mine =
      static_cast<double>(memory_budget(options, ops.device(), static_cast<int>(workers_here)));
  return static_cast<std::size_t>(std::ranges::min(group.numbers(std::span(&mine, 1))));
}

// What worker 0 sends to the others: stage, micro-batch, tiers, recompute and its modes.
std::string encode(const TrainOptions& options) {
  std::string modes;
  for (const plan::Recompute mode : options.recompute_of_blocks) {
    modes += static_cast<char>('0' + static_cast<int>(mode));
  }
  const nn::Tiers& tiers = options.offload.tiers;
  const auto number = [](auto choice) { return static_cast<int>(choice); };
  return fmt::format("{} {} {} {} {} {} {} {}", options.parallel.zero, solved(options.batch).micro,
                     number(tiers.optimizer), number(tiers.gradients), number(tiers.parameters),
                     number(tiers.activations), number(options.recompute), modes);
}

int number_of(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

TrainOptions with_decision(TrainOptions options, std::string_view encoded) {
  const std::vector<std::string_view> words = split_text(encoded, ' ');
  options.parallel.zero = number_of(words.at(0));
  // The step keeps its sequences, so that any number of workers can share it.
  const int micro = number_of(words.at(1));
  if (const BatchChoice present = solved(options.batch); present.micro != micro) {
    options.batch.sequences = present.sequences;
    options.batch.micro = micro;
    options.batch.accumulation = 0;
  }
  const auto tier = [&](std::size_t word) { return static_cast<Tier>(number_of(words.at(word))); };
  nn::Tiers& tiers = options.offload.tiers;
  tiers.optimizer = tier(2);
  tiers.gradients = tier(3);
  tiers.parameters = tier(4);
  tiers.activations = tier(5);
  options.recompute = static_cast<RecomputeChoice>(number_of(words.at(6)));
  options.recompute_of_blocks.clear();
  for (const char mode : words.at(7)) {
    options.recompute_of_blocks.push_back(static_cast<plan::Recompute>(mode - '0'));
  }
  return options;
}

}  // namespace

MemoryDecision decide_by_memory(const TrainOptions& options, const OpenSettings& open,
                                const Ops& ops, RunGroup group) {
  if (!options.memory_auto && options.recompute != RecomputeChoice::kAuto) {
    return {.options = options, .text = ""};
  }
  const std::size_t budget = budget_of_all(options, ops, group);
  TrainOptions chosen = options;
  std::string text_of_choice;
  group.together([&] {
    if (!group.leads()) return;
    if (options.memory_auto) {
      const MemoryChoice choice = choose_memory(options, open, ops, budget);
      chosen = choice.options;
      text_of_choice = "memory.auto: " + text(choice, budget);
    } else {
      settle_recompute(chosen, ops, budget);
      text_of_choice = fmt::format("train.recompute = \"auto\": recomputes {}, takes {} of {}",
                                   nn::text(chosen.recompute_of_blocks, model_of(chosen)),
                                   format_bytes(static_cast<double>(plan_run(chosen, ops).bytes())),
                                   format_bytes(static_cast<double>(budget)));
    }
    check_budget(chosen, ops, budget);
  });
  return {.options = with_decision(options, group.texts(encode(chosen)).front()),
          .text = text_of_choice};
}

void check_memory_before(const TrainOptions& options, const OpenSettings& open) {
  const ModelChoice& model = options.model;
  const bool is_known = !model.name.empty() || model.vocabulary > 0 || model.features > 0;
  if (!is_known || (options.memory_limit == 0 && options.device_limit == 0)) return;
  TrainOptions one = options;
  if (one.threads == 0) one.threads = 1;
  const auto ops = make_ops(one);
  if (one.memory_auto) one = choose_memory(one, open, *ops, one.memory_limit).options;
  settle_recompute(one, *ops, one.memory_limit);
  check_limit(one, plan_run(one, *ops), *ops);
}

}  // namespace lockstep::train
