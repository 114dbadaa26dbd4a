// lockstep plan: what a model takes, before anything runs.
#include <fmt/format.h>

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/plan/question.h"
#include "lockstep/cli/plan/run.h"

namespace lockstep::cli {
namespace {

using plan::Count;
using plan::ModelShape;

constexpr Count kDefaultPlanRanks[] = {1, 8, 64};
constexpr Count kMostPlanRanks = 10'000'000;
constexpr Count kMostRunRanks = 65536;

// As they were typed; empty where they were not.
struct PlanFlags {
  std::vector<std::string> run;  // a configuration file and settings
  std::string model;
  std::string parameters;
  std::string family;
  std::string layers;
  std::string hidden;
  std::string heads;
  std::string kv_heads;
  std::string head_size;
  std::string window;
  std::string feed_forward;
  std::string experts;
  std::string experts_per_token;
  std::string vocabulary;
  std::string positions;
  std::string head;
  bool no_biases = false;
  std::string precision = "bf16";
  std::string sequence;
  std::string batch;
  std::string ranks;
  std::string memory;
  std::string budget;  // another name of it
  std::string tokens;
  std::string gpu_flops;
  std::string days;
  std::string gpus;
  bool json = false;
};

std::string known_names() {
  std::vector<std::string_view> names;
  for (const ModelShape& model : plan::known_models()) names.push_back(model.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool describes_a_shape(const PlanFlags& flags) {
  for (const std::string* flag :
       {&flags.family, &flags.layers, &flags.hidden, &flags.heads, &flags.kv_heads,
        &flags.head_size, &flags.window, &flags.feed_forward, &flags.experts,
        &flags.experts_per_token, &flags.vocabulary, &flags.positions}) {
    if (!flag->empty()) return true;
  }
  return flags.no_biases;
}

Count count_or(std::string_view flag, const std::string& text, Count otherwise) {
  return text.empty() ? otherwise : parse_count(flag, text);
}

ModelShape own_shape(const PlanFlags& flags) {
  if (flags.layers.empty() || flags.hidden.empty() || flags.heads.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "a model of your own needs --layers, --hidden and --heads; or name one by --model: {}",
         known_names());
  }
  const bool translates = flags.family == plan::kEncoderDecoderName;
  ModelShape shape =
      translates ? plan::usual_encoder_decoder()
                 : plan::usual_shape(flags.family.empty() ? plan::Family::kGpt2
                                                          : plan::family_from_name(flags.family));
  shape.name = "own model";
  shape.layers = parse_count("--layers", flags.layers);
  if (translates || shape.parts().encoder_decoder) shape.decoder_layers = shape.layers;
  shape.hidden = parse_count("--hidden", flags.hidden);
  shape.heads = parse_count("--heads", flags.heads);
  shape.kv_heads = count_or("--kv-heads", flags.kv_heads, shape.heads);
  shape.head_size = count_or("--head-size", flags.head_size, 0);
  shape.window = count_or("--window", flags.window, 0);
  shape.feed_forward =
      count_or("--ff", flags.feed_forward, plan::usual_feed_forward(shape.family, shape.hidden));
  shape.experts = count_or("--experts", flags.experts, shape.experts);
  shape.experts_per_token =
      count_or("--experts-per-token", flags.experts_per_token, shape.experts_per_token);
  shape.vocabulary = count_or("--vocabulary", flags.vocabulary, shape.vocabulary);
  shape.positions =
      count_or("--positions", flags.positions, count_or("--seq", flags.sequence, shape.positions));
  if (flags.no_biases) shape.biases = false;
  return shape;
}

// Throws when the flags name no model or more than one; nothing when only P is known.
std::optional<ModelShape> chosen_shape(const PlanFlags& flags) {
  const bool own = describes_a_shape(flags);
  if (!flags.parameters.empty()) {
    if (own || !flags.model.empty() || !flags.head.empty() || !flags.sequence.empty() ||
        !flags.batch.empty()) {
      fail(ErrorCode::kInvalidArgument,
           "--parameters is for a model of which only the count is known; leave it out with "
           "--model and with flags like --layers, --seq and --batch");
    }
    return std::nullopt;
  }
  if (!flags.model.empty() && own) {
    fail(ErrorCode::kInvalidArgument,
         "--model {} already has its sizes; leave --model out to describe a model by --layers, "
         "--hidden, --heads and so on (only --seq, --batch and --head go with --model)",
         flags.model);
  }
  if (flags.model.empty() && !own) {
    fail(ErrorCode::kInvalidArgument,
         "no model is given: use --model with one of {}; or --layers, --hidden and --heads; or "
         "--parameters with their count",
         known_names());
  }
  ModelShape shape = flags.model.empty() ? own_shape(flags) : plan::find_model(flags.model);
  if (shape.is_encoder_decoder() && !shape.parts().encoder_decoder &&
      (!flags.head.empty() || !flags.kv_heads.empty() || flags.no_biases)) {
    fail(ErrorCode::kInvalidArgument,
         "an encoder-decoder has a tied head, as many key/value heads as heads, and biases; leave "
         "--head, --kv-heads and --no-biases out");
  }
  if (!flags.head.empty()) shape.head = plan::head_from_name(flags.head);
  return shape;
}

std::vector<Count> parse_ranks(const std::string& text) {
  if (text.empty()) return {std::begin(kDefaultPlanRanks), std::end(kDefaultPlanRanks)};
  std::vector<Count> ranks;
  for (const std::string_view part : split_text(text, ',')) {
    ranks.push_back(parse_count("--ranks", trim(part)));
    if (ranks.back() > kMostPlanRanks) {
      fail(ErrorCode::kInvalidArgument, "--ranks: {} are more than the {} that plan takes",
           ranks.back(), kMostPlanRanks);
    }
  }
  return ranks;
}

// 0: it was not given.
Count memory_of(const PlanFlags& flags) {
  if (!flags.memory.empty() && !flags.budget.empty()) {
    fail(ErrorCode::kInvalidArgument, "--memory and --budget mean the same; leave one of them out");
  }
  const std::string& text = flags.memory.empty() ? flags.budget : flags.memory;
  if (text.empty()) return 0;
  try {
    return parse_bytes(text);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", flags.memory.empty() ? "--budget" : "--memory", error.what());
  }
}

void read_training(const PlanFlags& flags, PlanQuestion& question) {
  const auto number = [](std::string_view flag, const std::string& text) {
    return text.empty() ? std::optional<double>() : parse_number(flag, text);
  };
  question.tokens = number("--tokens", flags.tokens);
  const std::optional<double> flops_per_gpu = number("--gpu-flops", flags.gpu_flops);
  question.flops_per_gpu = flops_per_gpu.value_or(0);
  question.days = number("--days", flags.days);
  if (!flags.gpus.empty()) {
    question.gpus = static_cast<double>(parse_count("--gpus", flags.gpus));
  }
  const bool asks = question.days || question.gpus;
  if ((asks || flops_per_gpu) && !(asks && flops_per_gpu && question.tokens)) {
    fail(ErrorCode::kInvalidArgument,
         "training time needs --tokens, --gpu-flops and one of --days and --gpus, like --tokens "
         "300e9 --gpu-flops 160e12 --days 30");
  }
}

PlanQuestion read_question(const PlanFlags& flags) {
  PlanQuestion question;
  question.shape = chosen_shape(flags);
  if (question.shape) {
    const ModelShape& shape = *question.shape;
    question.parameters = plan::count_parameters(shape).total();
    question.sequence = count_or("--seq", flags.sequence, shape.positions);
    question.batch = count_or("--batch", flags.batch, 1);
    if (shape.learns_positions() && question.sequence > shape.positions) {
      fail(ErrorCode::kInvalidArgument,
           "--seq {} is longer than the {} positions that {} has learned", question.sequence,
           shape.positions, shape.name);
    }
  } else {
    question.parameters = parse_count("--parameters", flags.parameters);
  }
  question.precision = plan::precision_from_name(flags.precision);
  question.ranks = parse_ranks(flags.ranks);
  if (const Count memory = memory_of(flags); memory > 0) question.memory = memory;
  read_training(flags, question);
  return question;
}

std::vector<int> ranks_of_run(const std::string& text) {
  std::vector<int> ranks;
  if (text.empty()) return ranks;
  for (const Count count : parse_ranks(text)) {
    if (count < 1 || count > kMostRunRanks) {
      fail(ErrorCode::kInvalidArgument, "--ranks: a run has 1 to {} of them, not {}", kMostRunRanks,
           count);
    }
    ranks.push_back(static_cast<int>(count));
  }
  return ranks;
}

// A run has its settings in its configuration.
void check_alone(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "run" || name == "--json" || name == "--ranks" ||
        name == "--memory" || name == "--budget") {
      continue;
    }
    fail(ErrorCode::kInvalidArgument,
         "{} applies to a model that is described by flags; a run takes key=value settings, like "
         "train.micro_batch_size=4",
         name);
  }
}

std::string plan_footer() {
  return fmt::format(
      "Two things can be planned. A run, by its configuration: the very layout of memory that\n"
      "training takes, buffer by buffer. Or by flags a model of any size, by formula, on any\n"
      "number of ranks.\n\n"
      "Examples:\n"
      "  lockstep plan job.toml\n"
      "  lockstep plan job.toml train.recompute=full memory.limit=8GiB\n"
      "  lockstep plan job.toml --ranks 4 parallel.zero=3\n"
      "  lockstep plan job.toml --ranks 1,4,16 --budget 8GiB\n"
      "  lockstep plan model.name=gpt2-124m train.micro_batch_size=4\n"
      "  lockstep plan --model gpt2-124m --batch 4\n"
      "  lockstep plan --model gpt3-175b --ranks 64,1024 --memory 80GiB\n"
      "  lockstep plan --model gpt3-175b --tokens 300e9 --gpu-flops 160e12 --days 30\n"
      "  lockstep plan --parameters 7.5e9 --ranks 64\n"
      "  lockstep plan --family llama --layers 32 --hidden 4096 --heads 32 --kv-heads 8 "
      "--ff 14336 \\\n"
      "                --vocabulary 128256 --seq 8192\n"
      "  lockstep plan --family encoder-decoder --layers 6 --hidden 512 --heads 8\n\n"
      "Models: {}\n"
      "Numbers may be written 12, 7.5e9 or 300B; bytes 80GiB or 80GB. The formulas are in\n"
      "docs/plan.md.",
      known_names());
}

}  // namespace

void add_plan(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "plan", "Parameters, memory, FLOPs, GPUs and days of a model, before anything runs");
  auto flags = std::make_shared<PlanFlags>();
  command->add_option("run", flags->run, "A run: its configuration file, and settings on top")
      ->type_name("[CONFIG.toml] [key=value ...]");
  command->add_option("--model", flags->model, "A model by name")->group("Model");
  command->add_option("--parameters", flags->parameters, "Only their number, like 7.5e9")
      ->group("Model");
  const auto own = [&](const char* flag, std::string& field, const char* help) {
    command->add_option(flag, field, help)->group("A model of your own");
  };
  own("--family", flags->family,
      "gpt2 (default), llama, bert, mixtral, qwen3, phi3, gpt-neox, gemma2 or encoder-decoder");
  own("--layers", flags->layers, "Number of layers; of an encoder-decoder: of either half");
  own("--hidden", flags->hidden, "Hidden size");
  own("--heads", flags->heads, "Attention heads");
  own("--kv-heads", flags->kv_heads, "Key/value heads (default: as many as heads)");
  own("--head-size", flags->head_size,
      "Width of a head, in llama, mixtral, qwen3, phi3 and gemma2 (default: hidden / heads)");
  own("--window", flags->window,
      "Tokens that attention sees, in llama, mixtral, qwen3, phi3 and every second layer of gemma2 "
      "(default: all)");
  own("--ff", flags->feed_forward, "Feed-forward width (default 4 x hidden; llama 8/3)");
  own("--experts", flags->experts, "Experts of a layer, in mixtral (default 8)");
  own("--experts-per-token", flags->experts_per_token,
      "Experts that a token goes to, in mixtral (default 2)");
  own("--vocabulary", flags->vocabulary, "Tokens (default: 50257, llama 32000, bert 30522)");
  own("--positions", flags->positions, "Longest sequence (default: --seq, or the family's)");
  command->add_flag("--no-biases", flags->no_biases, "Linear layers and norms without biases")
      ->group("A model of your own");
  const auto asked = [&](const char* flag, std::string& field, const char* help) {
    command->add_option(flag, field, help)->group("What to plan");
  };
  asked("--head", flags->head, "tied, own, mlm or pooler (default: the model's)");
  asked("--precision", flags->precision, "bf16 (default), f16, f32 or fp8");
  asked("--seq", flags->sequence, "Tokens of a sequence (default: the model's positions)");
  asked("--batch", flags->batch, "Sequences of a micro-batch on one rank (default 1)");
  asked("-n,--ranks", flags->ranks,
        "Ranks that ZeRO shards over (default 1,8,64); of a run: its workers");
  asked("--memory", flags->memory, "Bytes that a rank may use, like 80GiB: marks what fits");
  asked("--budget", flags->budget, "Same as --memory");
  const auto training = [&](const char* flag, std::string& field, const char* help) {
    command->add_option(flag, field, help)->group("Training time");
  };
  training("--tokens", flags->tokens, "Tokens to train on, like 300e9");
  training("--gpu-flops", flags->gpu_flops, "FLOPs per second that a GPU sustains, like 160e12");
  training("--days", flags->days, "Compute how many GPUs finish in this many days");
  training("--gpus", flags->gpus, "Compute how many days this many GPUs take");
  command->add_flag("--json", flags->json, "Print one JSON object instead");
  command->footer(plan_footer());
  command->callback([flags, command, &exit_code] {
    exit_code = 0;
    if (!flags->run.empty()) {
      check_alone(*command);
      plan_run({.arguments = flags->run,
                .ranks = ranks_of_run(flags->ranks),
                .budget = memory_of(*flags),
                .json = flags->json});
      return;
    }
    const PlanQuestion question = read_question(*flags);
    fmt::print("{}", flags->json ? plan_json(question) : plan_text(question));
  });
}

}  // namespace lockstep::cli
