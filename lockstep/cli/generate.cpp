// lockstep generate: a trained model continues a text, or translates it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/train/generate/generate.h"
#include "lockstep/train/generate/translate.h"
#include "lockstep/train/model_io/saved_model.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/stop_signal.h"

namespace lockstep::cli {
namespace {

constexpr const char* kGenerateExamples =
    R"(MODEL is the folder of a run (its newest checkpoint), of a checkpoint, or of a model of Hugging
Face transformers with config.json, model.safetensors and tokenizer.json.

The prompt is PROMPT, a file, or standard input (-), without its last line break. Without a prompt
the model begins a new text. The text goes to standard output as it is generated, the speed to
standard error. The same seed gives the same text.

Examples:
  lockstep generate run "Once upon a time"
  lockstep generate run --checkpoint best "Once upon a time"
  lockstep generate run/checkpoints/step-00001000 --tokens 500 --temperature 0.7 --top-p 0.9
  lockstep generate gpt2/ --prompt-file story.txt --count 3 --seed 7
  lockstep generate gpt2/ --prompts beginnings.txt --batch 16
  echo "The answer is" | lockstep generate gpt2/ --temperature 0

A model of the families encoder-decoder, t5 and t5-v1.1 translates the prompt instead, line by line; without
--temperature it takes the most probable translation.

With --prompts every line of a file is a prompt. --batch of them are continued together, which takes
little longer than one. Texts are printed when their batch is done, separated by lines "---". A text
does not depend on the other prompts of its batch.

The text ends where the model ends it, or after --tokens. When the model's positions are used up it
drops the older half of the text and continues with the newer half.)";

struct GenerateFlags {
  std::string model;
  std::string checkpoint;
  std::string prompt;
  bool has_prompt = false;
  std::string prompt_file;
  std::string prompts;  // a file of them
  std::int64_t batch = 8;
  bool has_temperature = false;
  std::int64_t tokens = 256;
  nn::SamplingOptions sampling = {.temperature = 0.8, .top_k = 50, .top_p = 1, .seed = 1};
  std::string precision = "bf16";
  int threads = 0;
  std::string device = "auto";
  int count = 1;
  bool past_end = false;
};

constexpr std::string_view kPrecisions[] = {"f32", "bf16", "f16"};

DType precision_of(const std::string& text) {
  if (text == "f32") return DType::kF32;
  if (text == "bf16") return DType::kBF16;
  if (text == "f16") return DType::kF16;
  fail(ErrorCode::kInvalidArgument, "--precision is '{}'; expected one of {}", text,
       fmt::join(kPrecisions, ", "));
}

std::string without_last_break(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

std::string prompt_of(const GenerateFlags& flags) {
  const bool asks_for_input = flags.prompt == "-" || flags.prompt_file == "-";
  if (flags.has_prompt && !asks_for_input) return flags.prompt;
  if (!flags.prompt_file.empty() && !asks_for_input) {
    return without_last_break(read_file(flags.prompt_file));
  }
  if (::isatty(STDIN_FILENO) != 0 && !asks_for_input) return "";
  return without_last_break(
      std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()));
}

// A model may write any bytes. On a terminal, characters that move the cursor are dropped.
bool write_out(std::string_view bytes) {
  static const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
  const std::string shown = on_terminal ? printable(bytes) : std::string();
  const std::string_view text = on_terminal ? std::string_view(shown) : bytes;
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

void tell_speed(const train::Generation& made, std::size_t prompt, const std::string& ops,
                const std::string& precision) {
  const auto count = made.tokens.size();
  fmt::print(stderr, "{} token{} at {:.1f} tokens/s after a prompt of {} in {}; {}, {}\n", count,
             count == 1 ? "" : "s",
             made.seconds > 0 ? static_cast<double>(count) / made.seconds : 0.0, prompt,
             format_seconds(made.prompt_seconds), precision, ops);
}

// Line by line, each the likeliest unless a temperature was asked for.
int translate(const GenerateFlags& flags, train::Translator& translator, const std::string& texts,
              const std::string& ops) {
  const train::StopSignal stop;
  nn::SamplingOptions sampling = flags.sampling;
  if (!flags.has_temperature) sampling.temperature = 0;
  std::size_t tokens = 0;
  double seconds = 0;
  bool written = true;
  const auto write = [&](std::string_view piece) {
    written = written && write_out(piece);
    return written && !stop.came();
  };
  for (int i = 0; i < flags.count; ++i, ++sampling.seed) {
    for (const std::string_view text : split_text(texts, '\n')) {
      const train::Generation made = translator.run(text, flags.tokens, sampling, write);
      tokens += made.tokens.size();
      seconds += made.seconds;
      if (!write("\n")) break;
    }
    if (!written || stop.came()) break;
  }
  if (stop.came()) return kInterrupted;
  if (!written) fail(ErrorCode::kSystem, "the text cannot be written to standard output");
  fmt::print(stderr, "{} token{} at {:.1f} tokens/s; {}, {}\n", tokens, tokens == 1 ? "" : "s",
             seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0, flags.precision, ops);
  return 0;
}

train::GenerateOptions wanted_of(const GenerateFlags& flags) {
  return {.prompt = {},
          .max_new_tokens = flags.tokens,
          .sampling = flags.sampling,
          .stop_at_end_of_text = !flags.past_end,
          .slides = true};
}

std::int64_t tokens_of(const train::SavedModel& saved, const std::string& text) {
  std::vector<data::TokenId> ids;
  saved.tokenizer->encode(text, ids);
  return static_cast<std::int64_t>(ids.size());
}

std::int64_t positions_for(const GenerateFlags& flags, const train::SavedModel& saved,
                           std::int64_t length) {
  return std::min(saved.positions, std::max<std::int64_t>(1, length) + flags.tokens);
}

// Every line of a file, some together.
int continue_prompts(const GenerateFlags& flags, const train::SavedModel& saved,
                     const nn::Weights& weights, Ops& ops) {
  std::vector<std::string> lines;
  std::int64_t longest = 0;
  for (const std::string_view line :
       split_text(without_last_break(read_file(flags.prompts)), '\n')) {
    lines.push_back(without_last_break(std::string(line)));
    longest = std::max(longest, tokens_of(saved, lines.back()) + 1);
  }
  const auto together = std::min(flags.batch, static_cast<std::int64_t>(lines.size()));
  nn::Decoder decoder(saved.model, weights.flat(), weights.buffer(),
                      {.positions = positions_for(flags, saved, longest), .batch = together}, ops);
  train::Generator generator(decoder, *saved.tokenizer);
  train::GenerateOptions wanted = wanted_of(flags);
  const train::StopSignal stop;
  std::size_t tokens = 0;
  double seconds = 0;
  bool is_first = true;
  for (int i = 0; i < flags.count; ++i) {
    wanted.sampling.seed = flags.sampling.seed + static_cast<std::uint64_t>(i);
    for (std::size_t first = 0; first < lines.size(); first += static_cast<std::size_t>(together)) {
      const std::size_t end = std::min(lines.size(), first + static_cast<std::size_t>(together));
      std::vector<std::vector<data::TokenId>> prompts;
      for (std::size_t line = first; line < end; ++line) {
        prompts.push_back(lines[line].empty() ? std::vector<data::TokenId>()
                                              : generator.prompt(lines[line]));
      }
      const auto texts = generator.run_all(
          prompts, wanted, [&](std::size_t, std::string_view) { return !stop.came(); });
      if (stop.came()) return kInterrupted;
      for (std::size_t t = 0; t < texts.size(); ++t) {
        const std::string text = (std::exchange(is_first, false) ? "" : "---\n") +
                                 lines[first + t] + texts[t].text + "\n";
        if (!write_out(text)) {
          fail(ErrorCode::kSystem, "the text cannot be written to standard output");
        }
        tokens += texts[t].tokens.size();
      }
      seconds += texts.front().prompt_seconds + texts.front().seconds;
    }
  }
  fmt::print(stderr, "{} tokens of {} texts at {:.1f} tokens/s with their prompts; {}, {}\n",
             tokens, lines.size() * static_cast<std::size_t>(flags.count),
             seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0, flags.precision,
             ops.name());
  return 0;
}

int generate(const GenerateFlags& flags) {
  const DType dtype = precision_of(flags.precision);
  nn::Sampler(flags.sampling);  // to refuse what it refuses before anything is loaded
  const std::string prompt = flags.prompts.empty() ? prompt_of(flags) : "";
  train::TrainOptions options;
  options.threads = flags.threads;
  options.device = flags.device;
  const auto warn = [](const std::string& text) { fmt::print(stderr, "lockstep: {}\n", text); };
  const std::string model = train::choose_checkpoint(flags.model, flags.checkpoint).string();
  options.model = train::choice_in(model);
  const auto ops = train::make_ops(options);
  if (const auto translator =
          train::open_translator(model, plan::precision_from_name(flags.precision), *ops, warn)) {
    const std::string texts =
        flags.prompts.empty() ? prompt : without_last_break(read_file(flags.prompts));
    return translate(flags, *translator, texts, ops->name());
  }
  const train::SavedModel saved = train::open_model(model, warn);
  if (saved.tokenizer == nullptr) {
    fail(ErrorCode::kInvalidArgument,
         "{} has no tokenizer.json, so its tokens cannot be turned into text; put the tokenizer's "
         "file there",
         saved.origin);
  }
  const nn::Weights weights = train::load_weights(saved, dtype, *ops);

  if (!flags.prompts.empty()) return continue_prompts(flags, saved, weights, *ops);
  train::GenerateOptions wanted = wanted_of(flags);
  // One more for a token that begins texts.
  nn::Decoder decoder(saved.model, weights.flat(), weights.buffer(),
                      {.positions = positions_for(flags, saved, tokens_of(saved, prompt) + 1)},
                      *ops);
  train::Generator generator(decoder, *saved.tokenizer);
  if (!prompt.empty()) wanted.prompt = generator.prompt(prompt);
  generator.check_prompt(wanted.prompt);

  const train::StopSignal stop;
  for (int i = 0; i < flags.count; ++i) {
    wanted.sampling.seed = flags.sampling.seed + static_cast<std::uint64_t>(i);
    if (i > 0 && !write_out("\n---\n")) return 1;
    bool written = write_out(prompt);
    const train::Generation made = generator.run(wanted, [&](std::string_view piece) {
      written = written && write_out(piece);
      return written && !stop.came();
    });
    written = written && write_out("\n");
    tell_speed(made, std::max<std::size_t>(1, wanted.prompt.size()), ops->name(), flags.precision);
    if (stop.came()) return kInterrupted;
    if (!written) fail(ErrorCode::kSystem, "the text cannot be written to standard output");
  }
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  const auto flags = std::make_shared<GenerateFlags>();
  CLI::App* command =
      app.add_subcommand("generate", "Let a trained model continue a text, or translate it");
  command->footer(kGenerateExamples);
  command->add_option("model", flags->model, "a run, a checkpoint or a Hugging Face folder")
      ->required()
      ->type_name("FOLDER");
  command
      ->add_option("--checkpoint", flags->checkpoint,
                   "of a run: newest, best (the lowest validation loss) or a step [newest]")
      ->type_name("WHICH");
  CLI::Option* prompt = command->add_option("prompt", flags->prompt, "the text to continue");
  CLI::Option* file =
      command->add_option("--prompt-file", flags->prompt_file, "a file with the text to continue")
          ->excludes(prompt)
          ->type_name("FILE");
  command->add_option("--prompts", flags->prompts, "a file with a prompt on every line")
      ->excludes(prompt)
      ->excludes(file)
      ->type_name("FILE");
  command->add_option("--batch", flags->batch, "prompts of --prompts that are continued together")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 12))
      ->capture_default_str();
  command->add_option("--tokens", flags->tokens, "the most new tokens of a text")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40))
      ->capture_default_str();
  CLI::Option* temperature =
      command
          ->add_option("--temperature", flags->sampling.temperature,
                       "sampling temperature; 0 always takes the most probable token")
          ->capture_default_str();
  command
      ->add_option("--top-k", flags->sampling.top_k,
                   "sample from the K most probable tokens; 0: all")
      ->capture_default_str();
  command
      ->add_option("--top-p", flags->sampling.top_p,
                   "sample from the most probable tokens whose probabilities sum to P")
      ->capture_default_str();
  command
      ->add_option("--seed", flags->sampling.seed,
                   "seed of the sampling; each further text uses the next seed")
      ->capture_default_str();
  command->add_option("--precision", flags->precision, "bf16, f16 or f32")->capture_default_str();
  command
      ->add_option("--device", flags->device, "cpu, cuda, cuda:1, or auto: a GPU if there is one")
      ->capture_default_str();
  command->add_option("--threads", flags->threads, "threads to compute with (all allowed cores)")
      ->check(CLI::Range(0, 1 << 16));
  command->add_option("--count", flags->count, "number of texts")
      ->check(CLI::Range(1, 1 << 30))
      ->capture_default_str();
  command->add_flag("--past-end", flags->past_end, "continue after the model ends the text");
  command->callback([flags, prompt, temperature, &exit_code] {
    flags->has_prompt = prompt->count() > 0;
    flags->has_temperature = temperature->count() > 0;
    exit_code = generate(*flags);
  });
}

}  // namespace lockstep::cli
