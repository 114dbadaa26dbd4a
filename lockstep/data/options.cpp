#include "lockstep/data/options.h"

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

}  // namespace lockstep::data
