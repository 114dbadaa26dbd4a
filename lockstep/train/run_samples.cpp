#include "lockstep/train/run_samples.h"

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/decoder.h"
#include "lockstep/train/generate.h"
#include "lockstep/train/run_start.h"

namespace lockstep::train {

std::string cannot_sample(const RunOptions& options, const Dataset& dataset) {
  if (objective_of(options.train) != Objective::kNextToken) return "the model continues no texts";
  if (!dataset.tokenizer) return "the tokens come without a tokenizer";
  if (options.train.parallel.zero < 3 || options.train.batch.workers < 2) return "";
  return "with parallel.zero = 3 no rank has all parameters (`lockstep generate` takes a "
         "checkpoint)";
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

std::string sample_text(nn::Replica& replica, const data::Tokenizer& tokenizer,
                        const RunOptions& options) {
  const std::int64_t positions = replica.setup().shape.sequence;
  nn::Decoder decoder(replica, {.positions = positions});
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

}  // namespace lockstep::train
