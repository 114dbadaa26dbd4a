#include "lockstep/train/run_samples.h"

#include <functional>
#include <span>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/decoder.h"
#include "lockstep/train/generate.h"
#include "lockstep/train/run_start.h"

namespace lockstep::train {

std::string cannot_sample(const RunOptions& options, const Dataset& dataset) {
  if (objective_of(options.train) != Objective::kNextToken) return "the model continues no texts";
  if (!dataset.tokenizer) return "the tokens come without a tokenizer";
  if (options.train.offload.tiers.parameters == Tier::kFile) {
    return "the parameters lie in a file (`lockstep generate` takes a checkpoint)";
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

std::string generated(const nn::Replica& replica, const data::Tokenizer& tokenizer,
                      const RunOptions& options, const std::function<void()>& before_pass) {
  const std::int64_t positions = replica.setup().shape.sequence;
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
  return chosen + generator.run(wanted).text;
}

}  // namespace

std::optional<std::string> sample_text(nn::Replica& replica, parallel::Strategy& strategy,
                                       RunGroup group, const data::Tokenizer& tokenizer,
                                       const RunOptions& options) {
  if (!replica.plan().sharding.parameters) {
    if (!group.leads()) return std::nullopt;
    return generated(replica, tokenizer, options, {});
  }
  // Whether the leader passes over the model once more.
  const auto agree = [&](bool once_more) {
    const double mine = once_more ? 1 : 0;
    return group.numbers(std::span(&mine, 1)).front() != 0;
  };
  if (!group.leads()) {
    while (agree(false)) strategy.stand_in_for_forward();
    return std::nullopt;
  }
  std::optional<std::string> text;
  std::optional<Error> failure;
  try {
    text = generated(replica, tokenizer, options, [&] { agree(true); });
  } catch (const Error& error) {
    if (is_of_ranks(error.code())) throw;
    failure = error;  // found before a pass
  }
  agree(false);
  if (failure) throw *failure;
  return text;
}

}  // namespace lockstep::train
