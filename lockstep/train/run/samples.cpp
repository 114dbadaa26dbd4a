#include "lockstep/train/run/samples.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/generate/decoder.h"
#include "lockstep/train/generate/generate.h"
#include "lockstep/train/run/start.h"

namespace lockstep::train {

std::string cannot_sample(const RunOptions& options, const Dataset& dataset) {
  if (objective_of(options.train) != Objective::kNextToken) return "the model cannot generate text";
  if (!dataset.tokenizer) return "the tokens have no tokenizer";
  if (options.train.parallel.tensor > 1) {
    return "tensor groups divide the model (use `lockstep generate` on a checkpoint)";
  }
  if (options.train.parallel.expert > 1) {
    return "expert groups divide the model (use `lockstep generate` on a checkpoint)";
  }
  if (options.train.parallel.pipeline > 1) {
    return "pipeline stages divide the model (use `lockstep generate` on a checkpoint)";
  }
  if (options.train.offload.tiers.parameters == Tier::kFile) {
    return "the parameters are offloaded to a file (use `lockstep generate` on a checkpoint)";
  }
  return "";
}

void check_prompt(const RunOptions& options, const Dataset& dataset) {
  if (options.sample.every == 0 || !cannot_sample(options, dataset).empty()) return;
  std::vector<data::TokenId> ids;
  try {
    dataset.tokenizer->encode(options.sample.prompt, ids);
  } catch (const Error& error) {
    fail(error.code(), "sample.prompt cannot be encoded: {}", error.what());
  }
}

namespace {

// Nothing where it `stops`, which is asked behind every piece of text.
std::optional<std::string> generated(const nn::Replica& replica, const data::Tokenizer& tokenizer,
                                     const RunOptions& options, const std::function<bool()>& stops,
                                     const std::function<void()>& before_pass) {
  const nn::Setup& setup = replica.setup();
  const std::int64_t positions = setup.shape.sequence * setup.context.size;
  nn::Decoder decoder(replica, {.positions = positions}, before_pass);
  Generator generator(decoder, tokenizer);
  GenerateOptions wanted{.prompt = {},
                         .max_new_tokens = options.sample.tokens,
                         .sampling = {.temperature = options.sample.temperature,
                                      .seed = static_cast<std::uint64_t>(options.train.seed)},
                         .slides = true};
  const bool has_beginning = tokenizer.special(data::Special::kBegin).has_value() ||
                             tokenizer.special(data::Special::kEndOfText).has_value();
  const std::string& chosen = options.sample.prompt;
  const std::string prompt = chosen.empty() && !has_beginning ? "\n" : chosen;
  if (!prompt.empty()) wanted.prompt = generator.prompt(prompt);
  const Generation made = generator.run(wanted, [&](std::string_view) { return !stops(); });
  if (made.end == Generation::End::kStopped) return std::nullopt;
  return chosen + made.text;
}

}  // namespace

std::optional<std::string> sample_text(nn::Replica& replica, parallel::Strategy& strategy,
                                       RunGroup group, const data::Tokenizer& tokenizer,
                                       const RunOptions& options, const StopSignal& stop) {
  if (!replica.plan().sharding.parameters) {
    if (!group.leads()) return std::nullopt;
    return generated(replica, tokenizer, options, [&] { return stop.came(); }, {});
  }
  bool other_stops = false;
  // Agrees on whether the leader passes over the model once more; the leader learns whether others
  // want to stop.
  const auto agree = [&](bool once_more) {
    const double mine = (group.leads() ? once_more : stop.came()) ? 1 : 0;
    const std::vector<double> all = group.numbers(std::span(&mine, 1));
    other_stops = std::any_of(all.begin() + 1, all.end(), [](double x) { return x != 0; });
    return all.front() != 0;
  };
  if (!group.leads()) {
    while (agree(false)) strategy.stand_in_for_forward();
    return std::nullopt;
  }
  std::optional<std::string> text;
  std::optional<Error> failure;
  try {
    text = generated(
        replica, tokenizer, options, [&] { return stop.came() || other_stops; },
        [&] { agree(true); });
  } catch (const Error& error) {
    if (is_of_ranks(error.code())) throw;
    failure = error;  // found before a pass
  }
  agree(false);
  if (failure) throw *failure;
  return text;
}

}  // namespace lockstep::train
