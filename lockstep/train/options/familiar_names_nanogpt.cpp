// nanoGPT's and llm.c's names that need a translation.
//
// nanoGPT's batch_size is what is computed at once, and its gradient_accumulation_steps are those
// of all ranks together: a step has batch_size * gradient_accumulation_steps sequences on any
// number of ranks. Without a batch_size, gradient_accumulation_steps are those of one rank, as
// Hugging Face and DeepSpeed have it.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/train/options/familiar_names.h"
#include "lockstep/train/options/familiar_names_words.h"

namespace lockstep::train::familiar {
namespace {

// What earlier names said; shared by those that go together.
struct Said {
  double batch = 0;  // 0: nothing yet
  double accumulation = 0;
  bool constant = false;  // decay_lr = false
};

Words whole(double number) { return fmt::format("{:.0f}", number); }

void accept_batch(Config& config, const std::shared_ptr<Said>& said) {
  const auto sequences = [said]() -> Words {
    if (said->batch == 0) return std::nullopt;
    return whole(said->batch * (said->accumulation > 0 ? said->accumulation : 1));
  };
  const auto micro = [said]() -> Words {
    return said->batch > 0 && said->accumulation > 1 ? whole(said->batch) : std::nullopt;
  };
  config.alias("batch_size", "train.global_batch_size", [=](std::string_view text) -> Words {
    if (text == "auto") return std::nullopt;
    said->batch = parse_number("batch_size", text);
    return sequences();
  });
  config.alias("batch_size", "train.micro_batch_size", [=](std::string_view) { return micro(); });
  config.alias("batch_size", "train.gradient_accumulation_steps", [=](std::string_view) -> Words {
    return said->accumulation > 0 ? Words("0") : std::nullopt;
  });
  constexpr std::string_view kAccumulation = "gradient_accumulation_steps";
  config.alias(kAccumulation, "train.gradient_accumulation_steps",
               [=](std::string_view text) -> Words {
                 if (text == "auto") return std::nullopt;
                 said->accumulation = parse_number(kAccumulation, text);
                 return said->batch > 0 ? Words("0") : Words(std::string(text));
               });
  config.alias(kAccumulation, "train.global_batch_size",
               [=](std::string_view) { return sequences(); });
  config.alias(kAccumulation, "train.micro_batch_size", [=](std::string_view) { return micro(); });
  config.alias("total_batch_size", "train.global_batch_size", [](std::string_view text) -> Words {
    fail(ErrorCode::kUnsupported,
         "total_batch_size = {} counts tokens; give train.global_batch_size, in sequences: tokens "
         "/ train.seq_len",
         text);
  });
}

// Both decay along a cosine where the decay is configured.
void accept_decay(Config& config, const std::shared_ptr<Said>& said) {
  config.alias("decay_lr", "schedule.decay", [said](std::string_view text) -> Words {
    said->constant = !is_true(text);
    return said->constant ? "constant" : "cosine";
  });
  const auto cosine = [said](std::string_view) -> Words {
    return said->constant ? std::nullopt : Words("cosine");
  };
  config.alias("lr_decay_iters", "schedule.decay_steps");
  config.alias("lr_decay_iters", "schedule.decay", cosine);
  config.alias("min_lr", "schedule.min_lr");
  config.alias("min_lr", "schedule.min_lr_ratio", [](std::string_view text) -> Words {
    return std::strtod(std::string(text).c_str(), nullptr) == 0 ? Words("0") : std::nullopt;
  });
  config.alias("learning_rate_decay_frac", "schedule.min_lr_ratio");
  config.alias("learning_rate_decay_frac", "schedule.decay", cosine);
}

// "float32", "bfloat16", "float16"
Words precision(std::string_view text) {
  const std::string type = lower(text);
  if (type == "auto") return std::nullopt;
  if (type == "bfloat16") return "bf16";
  return type == "float16" ? "f16" : type == "float32" ? "f32" : type;
}

// nanoGPT's "scratch" and "resume" are what a run does anyway.
Words init_from(std::string_view text) {
  if (text == "scratch" || text == "resume") return std::nullopt;
  return std::string(text);
}

// nanoGPT keeps a data set in data/NAME.
Config::Translate file_of_dataset(std::string file) {
  return [file = std::move(file)](std::string_view text) -> Words {
    return fmt::format("data/{}/{}", text, file);
  };
}

}  // namespace

void accept_nanogpt_names(Config& config) {
  const auto said = std::make_shared<Said>();
  accept_batch(config, said);
  accept_decay(config, said);
  for (const std::string_view name : {"max_iters", "num_iterations"}) {
    config.alias(name, "train.steps");
    config.alias(name, "train.epochs", [](std::string_view) { return Words("0"); });
  }
  config.alias("dtype", "train.precision", precision);
  config.alias("init_from", "run.init_from", init_from);
  config.alias("dataset", "data.tokens", file_of_dataset("train.bin"));
  config.alias("dataset", "data.validation_tokens", file_of_dataset("val.bin"));
  config.alias("model", "model.name");
}

}  // namespace lockstep::train::familiar
