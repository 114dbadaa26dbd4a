// lockstep eval: the loss of a saved model on data.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/printable.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/launch_flags.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/train/evaluate/evaluate.h"

namespace lockstep::cli {
namespace {

constexpr const char* kEvalFooter =
    R"(MODEL is the folder of a run (its newest checkpoint, or the one of --checkpoint), of a checkpoint,
or of a model of Hugging Face transformers with config.json and model.safetensors.

Without data.* the loss is that of a run's own held-back data, exactly as the run's validations
computed it. Data that is named is evaluated as a whole, by the model's own tokenizer. The other
settings that matter are train.seq_len, train.micro_batch_size, train.precision, train.threads,
train.seed (of masks), run.device and comm.*.

The loss is the mean over all predicted tokens, in nats; the perplexity is e to the loss. With --ranks
N the micro-batches are divided over N ranks, each with the whole model; the loss has the same bits.

Examples:
  lockstep eval runs/first
  lockstep eval runs/first --checkpoint best data.text=book.txt
  lockstep eval gpt2/ data.text=book.txt train.seq_len=512 train.precision=bf16 --batches 100
  lockstep eval runs/first data.text=book.txt --ranks 2 --json)";

struct EvalFlags {
  std::vector<std::string> arguments;  // the model, then settings
  std::string checkpoint;
  std::string split;
  std::optional<std::uint64_t> batches;
  bool json = false;
  LaunchFlags launch;
};

train::EvaluationRequest request_of(const EvalFlags& flags) {
  if (flags.arguments.empty() || flags.arguments.front().find('=') != std::string::npos) {
    fail(ErrorCode::kInvalidArgument,
         "lockstep eval needs the folder of a run, of a checkpoint or of a Hugging Face model, and "
         "settings behind it; see lockstep eval --help");
  }
  train::EvaluationRequest request{.model = flags.arguments.front(),
                                   .checkpoint = flags.checkpoint,
                                   .settings = {flags.arguments.begin() + 1, flags.arguments.end()},
                                   .part = {},
                                   .batches = flags.batches};
  if (flags.split == "validation") request.part = train::EvaluatedPart::kValidation;
  if (flags.split == "all") request.part = train::EvaluatedPart::kAll;
  if (!flags.split.empty() && !request.part) {
    fail(ErrorCode::kInvalidArgument, "--split is '{}'; expected validation or all", flags.split);
  }
  return request;
}

// Those of the environment and of the arguments: ranks need them before they can read the model.
CommOptions comm_of(const train::EvaluationRequest& request) {
  train::RunSettings settings;
  settings.config.read_environment();
  for (const std::string& one : request.settings) settings.config.set(one);
  if (settings.options.comm.backend == Backend::kThreads) {
    fail(ErrorCode::kUnsupported,
         "lockstep eval makes every rank a process; leave comm.backend = \"threads\" out");
  }
  return settings.options.comm;
}

std::string eval_text(const train::Evaluation& made) {
  std::string text = made.origin;
  if (made.step)
    text += fmt::format(", step {}", format_count(static_cast<std::uint64_t>(*made.step)));
  text += fmt::format("\n{}, {} parameters in {}; {}{}\n", made.model,
                      format_words(static_cast<double>(made.parameters)), made.precision,
                      made.hardware, made.ranks > 1 ? fmt::format(", {} ranks", made.ranks) : "");
  text += fmt::format("{}: {} of {} sequences of {}, {} targets\n", made.data,
                      format_count(made.sequences), format_count(made.available),
                      format_count(made.sequence_length), format_count(made.targets));
  text += fmt::format("loss           {:.6f}\n", made.loss);
  if (made.perplexity) text += fmt::format("perplexity     {:.4f}\n", *made.perplexity);
  if (made.bits_per_byte) {
    text += fmt::format("bits per byte  {:.4f}, of {} bytes\n", *made.bits_per_byte,
                        format_count(made.bytes));
  }
  if (made.accuracy) text += fmt::format("accuracy       {:.2f} %\n", 100 * *made.accuracy);
  return text + fmt::format("{}, {} tokens/s\n", format_duration(made.seconds),
                            format_count(static_cast<std::uint64_t>(made.tokens_per_second)));
}

// JSON has no way to write an infinite number or what is none.
nlohmann::ordered_json finite_or_null(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json();
}

std::string eval_json(const train::Evaluation& made) {
  nlohmann::ordered_json json{{"model", made.origin}};
  if (made.step) json["step"] = *made.step;
  json["parameters"] = made.parameters;
  json["precision"] = made.precision;
  json["hardware"] = made.hardware;
  json["ranks"] = made.ranks;
  json["data"] = made.data;
  json["loss"] = finite_or_null(made.loss);
  if (made.perplexity) json["perplexity"] = finite_or_null(*made.perplexity);
  if (made.bits_per_byte) json["bits_per_byte"] = finite_or_null(*made.bits_per_byte);
  if (made.accuracy) json["accuracy"] = *made.accuracy;
  json["sequences"] = made.sequences;
  json["sequence_length"] = made.sequence_length;
  json["available_sequences"] = made.available;
  json["targets"] = made.targets;
  if (made.bytes > 0) json["bytes"] = made.bytes;
  json["seconds"] = made.seconds;
  json["tokens_per_s"] = made.tokens_per_second;
  // Paths may be any bytes.
  return json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

constexpr auto kBetweenLines = std::chrono::seconds(10);

// A line every few seconds.
train::TellValidation eval_progress() {
  return [last = SteadyClock::now()](std::uint64_t done, std::uint64_t all) mutable {
    const auto now = SteadyClock::now();
    if (now - last < kBetweenLines) return;
    last = now;
    fmt::print(stderr, "evaluating {:.0f}%, {} of {} micro-batches\n",
               100 * static_cast<double>(done) / static_cast<double>(all), format_count(done),
               format_count(all));
  };
}

int eval_as_rank(const EvalFlags& flags, const train::EvaluationRequest& request,
                 const World& world, const CommOptions& comm) {
  const train::StopSignal stop;
  std::unique_ptr<Communicator> communicator;
  if (world.size > 1 || comm.backend == Backend::kMpi) communicator = make_world(world, comm);
  const bool leads = communicator == nullptr || communicator->rank() == 0;
  const auto say = [](const std::string& text) { fmt::print(stderr, "{}\n", printable(text)); };
  train::EvaluationListener listener;
  if (leads) {
    listener = {.notice = say,
                .warning = [&](const std::string& text) { say("warning: " + text); },
                .progress = eval_progress()};
  }
  const auto made = train::evaluate(
      request,
      train::RunGroup(communicator != nullptr && communicator->size() > 1 ? communicator.get()
                                                                          : nullptr),
      stop, listener);
  if (!made) return kInterrupted;
  if (!leads) return 0;
  const std::string text = flags.json ? eval_json(*made) : printable(eval_text(*made));
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    fail(ErrorCode::kSystem, "the result cannot be written to standard output");
  }
  return std::isfinite(made->loss) ? 0 : kNonFiniteError;
}

// Every rank a process of its own, started by this one.
int eval_in_processes(const EvalFlags& flags, const std::vector<std::string>& arguments) {
  LaunchFlags launch = flags.launch;
  launch.no_prefix = true;
  launch.options.error_prefix = kErrorPrefix;
  launch.options.ranks_per_node = flags.launch.options.ranks_per_node;
  launch.options.command = {std::filesystem::read_symlink("/proc/self/exe").string(), "eval"};
  auto& command = launch.options.command;
  command.insert(command.end(), arguments.begin(), arguments.end());
  if (!flags.checkpoint.empty()) {
    command.insert(command.end(), {"--checkpoint", flags.checkpoint});
  }
  if (!flags.split.empty()) command.insert(command.end(), {"--split", flags.split});
  if (flags.batches) command.insert(command.end(), {"--batches", std::to_string(*flags.batches)});
  if (flags.json) command.emplace_back("--json");
  return launch_job(resolve(launch));
}

int run_eval(const EvalFlags& flags) {
  const train::EvaluationRequest request = request_of(flags);
  const CommOptions comm = comm_of(request);
  WorldOverrides overrides;
  overrides.ranks_meet = comm.backend != Backend::kMpi;
  const World world = find_world(overrides);
  const int ranks = flags.launch.options.ranks_per_node * flags.launch.options.nodes;
  if (ranks > 1 && world.origin != kNothingSet) {
    fail(ErrorCode::kInvalidArgument,
         "--ranks asks for {} ranks, but a launcher started this process as rank {} of {} ({}). "
         "Leave --ranks out, or start lockstep without a launcher",
         ranks, world.rank, world.size, world.origin);
  }
  if (ranks == 1 || world.origin != kNothingSet) return eval_as_rank(flags, request, world, comm);
  if (comm.backend == Backend::kMpi) {
    fail(ErrorCode::kInvalidArgument,
         "--ranks {0} starts ranks without MPI; with comm.backend = \"mpi\" write mpirun -n {0} "
         "lockstep eval ..., without --ranks",
         ranks);
  }
  return eval_in_processes(flags, flags.arguments);
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  auto* command =
      app.add_subcommand("eval", "Measure a model's loss, perplexity and accuracy on data");
  const auto flags = std::make_shared<EvalFlags>();
  command->add_option("model", flags->arguments, "The model, and settings on top")
      ->type_name("MODEL [key=value ...]");
  command
      ->add_option("--checkpoint", flags->checkpoint,
                   "Of a run: newest, best (the lowest validation loss) or a step [newest]")
      ->type_name("WHICH");
  command
      ->add_option("--split", flags->split,
                   "all of the data, or the part that is held back for validation [all of data "
                   "that is named, the held-back part of a run's own]")
      ->type_name("all|validation");
  command
      ->add_option("--batches", flags->batches,
                   "The most micro-batches (train.micro_batch_size sequences each); 0: all [all; "
                   "of a run's own data as many as its validations took]")
      ->type_name("N");
  command->add_flag("--json", flags->json, "Print the result as JSON");
  command
      ->add_option("-n,--ranks,--nproc-per-node,--nproc_per_node",
                   flags->launch.options.ranks_per_node,
                   "Processes on this machine that divide the sequences")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_node_flags(*command, flags->launch);
  command->footer(kEvalFooter);
  command->callback([flags, &exit_code] {
    read_fixed_nodes(flags->launch);
    exit_code = run_eval(*flags);
  });
}

}  // namespace lockstep::cli
