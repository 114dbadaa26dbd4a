#include "lockstep/data/options.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::data {

void bind(Config& config, DataOptions& options) {
  config.bind(
      "data.text", options.text,
      "A text file, or a folder of them, to learn from; tokenised on first use. UTF-8, also "
      "packed by gzip or zstd, or JSON lines with data.field. Runs whose folders lie in it "
      "are left out.");
  config.bind("data.field", options.field,
              "The field that holds the text, where data.text and data.validation_text are JSON "
              "lines, each a document; empty: they are text.");
  config.bind("data.tokens", options.tokens,
              "A token file to train on: lockstep's, nanoGPT's, llm.c's or Megatron's.");
  config.bind(
      "data.mixture", options.mixture,
      "Several token files to train on, each behind its weight: [\"0.7 web.tokens\", \"0.3 "
      "code.tokens\"]. The share of a file in the sequences is its weight divided by the sum "
      "of all.");
  config.bind("data.pairs", options.pairs,
              "A text file for translation: source, tab and target on each line.");
  config.bind("data.table", options.table,
              "A CSV file of numbers; the last column is predicted from the others.");
  config.bind("data.tokenizer", options.tokenizer,
              "byte, character, bpe (learned from the text), a tokenizer.json, or a folder with "
              "one; empty: byte for text and pairs, and the tokenizer.json beside a token file.");
  config.bind("data.bpe_vocabulary", options.bpe_vocabulary,
              "Vocabulary size of a bpe that is learned from the text.",
              {.min = 256, .max = 1 << 24});
  config.bind("data.validation_tokens", options.validation_tokens,
              "A separate token file for validation.");
  config.bind("data.validation_text", options.validation_text,
              "A separate text file or folder for validation.");
  config.bind("data.validation_fraction", options.validation_fraction,
              "The fraction at the end of the data that is held back for validation where no "
              "separate file is given; 0: none.",
              {.min = 0, .max = 0.9});
  config.bind("data.mask_fraction", options.mask_fraction,
              "The fraction of tokens that a masked model has to predict.",
              {.min = 0.001, .max = 0.999});
}

MixtureEntry parse_mixture_entry(std::string_view entry) {
  MixtureEntry parsed;
  const char* end = entry.data() + entry.size();
  const auto [behind, error] = std::from_chars(entry.data(), end, parsed.weight);
  const bool spaced = error == std::errc() && behind != end && *behind == ' ';
  if (spaced) parsed.path = trim(std::string_view(behind, static_cast<std::size_t>(end - behind)));
  if (parsed.path.empty() || !std::isfinite(parsed.weight) || parsed.weight <= 0) {
    fail(ErrorCode::kInvalidArgument,
         "data.mixture lists '{}'; expected a weight over 0, a space and a token file, like \"0.7 "
         "web.tokens\"",
         entry);
  }
  return parsed;
}

std::string format_mixture_entry(const MixtureEntry& entry) {
  return fmt::format("{} {}", entry.weight, entry.path);
}

}  // namespace lockstep::data
