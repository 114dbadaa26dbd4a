#include "lockstep/bench/generate/bench_generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/bench/train/peer_environment.h"
#include "lockstep/bench/train/python.h"
#include "lockstep/plan/arithmetic.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;

// Compiling a model takes minutes.
constexpr std::chrono::minutes kTextTimeout{30};
constexpr std::chrono::minutes kStartTimeout{5};
constexpr int kWarmUps = 2;

// Shows progress, only on a terminal.
void show(const std::string& text) {
  if (::isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
}

void print_at_once(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

Program our_generator(const GenerateBench& bench) {
  Program program{
      {bench.command.string(), "bench", "generate-worker", "--batch", std::to_string(bench.batch),
       "--prompt", std::to_string(bench.prompt), "--tokens", std::to_string(bench.tokens)},
      {}};
  for (const std::string& setting : bench.settings) program.arguments.push_back(setting);
  return program;
}

Program pytorch_generator(const GenerateBench& bench, const std::string& python,
                          const GenerateWork& work, std::string_view mode) {
  const plan::ModelShape shape = train::shape_of(bench.options);
  const std::string threads = std::to_string(work.threads);
  const auto number = [](std::int64_t value) { return std::to_string(value); };
  return {{python,           (bench.peers_folder / "generate_pytorch.py").string(),
           "--mode",         std::string(mode),
           "--family",       std::string(plan::name(shape.family)),
           "--precision",    work.precision,
           "--device",       work.on_gpu ? "cuda" : "cpu",
           "--batch",        number(work.batch),
           "--prompt",       number(work.prompt),
           "--tokens",       number(work.tokens),
           "--threads",      threads,
           "--layers",       number(shape.layers),
           "--hidden",       number(shape.hidden),
           "--heads",        number(shape.heads),
           "--kv-heads",     number(shape.kv_heads),
           "--feed-forward", number(shape.feed_forward),
           "--vocabulary",   number(shape.vocabulary),
           "--positions",    number(shape.positions)},
          peer_environment(work.threads)};
}

// One implementation at work.
class Writer {
 public:
  Writer(std::string name, const Program& program, const Interrupt& interrupt)
      : helper_(std::move(name), program, interrupt, deadline_in(kStartTimeout)) {
    result_.implementation = helper_.name();
    const auto greeting = Json::parse(helper_.greeting(), nullptr, false);
    if (greeting.is_object()) result_.version = greeting.value("version", "");
  }

  void warm_up() {
    for (int i = 0; i < kWarmUps; ++i) {
      show(fmt::format("{}: warm-up text {} of {}", helper_.name(), i + 1, kWarmUps));
      ask("generate");
    }
    ask("reset");
  }

  void write() {
    if (const auto answer = ask("generate")) {
      result_.prompt_seconds.push_back(answer->value("prompt_seconds", 0.0));
      result_.seconds.push_back(answer->value("seconds", 0.0));
    }
  }

  GenerateResult finish() {
    if (const auto answer = ask("usage")) {
      result_.peak_bytes = answer->value("peak_bytes", std::size_t{0});
      result_.planned_bytes = answer->value("planned_bytes", std::size_t{0});
    }
    if (!helper_.failure().empty()) {
      result_.problem = helper_.failure();
      result_.seconds.clear();
      result_.prompt_seconds.clear();
    }
    std::sort(result_.prompt_seconds.begin(), result_.prompt_seconds.end());
    std::sort(result_.seconds.begin(), result_.seconds.end());
    return result_;
  }

  const std::string& name() const { return helper_.name(); }

 private:
  std::optional<Json> ask(std::string_view request) {
    const auto line = helper_.ask(request, deadline_in(kTextTimeout));
    if (!line) return std::nullopt;
    return Json::parse(*line, nullptr, false);
  }

  Helper helper_;
  GenerateResult result_;
};

using Writers = std::vector<std::unique_ptr<Writer>>;

// On the CPU PyTorch by hand, eager and compiled, for GPT-2 and one text; transformers for whatever
// it has. On a GPU transformers with a static cache and compiled steps.
void add_peers(const GenerateBench& bench, const GenerateWork& work, const Interrupt& interrupt,
               Writers& writers) {
  const plan::ModelShape shape = train::shape_of(bench.options);
  const bool gpt2 = shape.family == plan::Family::kGpt2;
  show("looking for a Python with PyTorch");
  const Python python = find_python(bench.python, bench.command);
  show("");
  if (!python.problem.empty()) {
    return print_at_once(fmt::format("left out: PyTorch: {}\n", python.problem));
  }
  const auto add = [&](std::string name, std::string_view mode) {
    writers.push_back(std::make_unique<Writer>(
        std::move(name), pytorch_generator(bench, python.program, work, mode), interrupt));
  };
  if (work.on_gpu) return add("transformers", "transformers-compile");
  if (gpt2 && work.batch == 1) add("pytorch-lean", "lean");
  if (gpt2 && work.batch == 1) add("pytorch-compile", "compile");
  add("transformers", "transformers");
}

// Parameters: all but tables of which a token takes a row.
std::size_t read_per_token(const plan::ModelShape& shape) {
  const plan::Parameters all = plan::count_parameters(shape);
  const plan::Count looked_up = shape.head == plan::Head::kTied ? 0 : all.embedding;
  return static_cast<std::size_t>(all.total() - all.positions - looked_up);
}

}  // namespace

bool run_generate(const GenerateBench& bench) {
  if (!bench.json.empty()) check_can_write(bench.json);
  const plan::ModelShape shape = train::shape_of(bench.options);
  if (bench.prompt + bench.tokens > static_cast<std::int64_t>(shape.positions)) {
    fail(ErrorCode::kInvalidArgument,
         "a prompt of {} and {} new tokens exceed the {} positions of {}; use fewer", bench.prompt,
         bench.tokens, shape.positions, shape.name);
  }
  const Interrupt interrupt;
  const DType dtype = train::dtype_of(bench.options.precision);
  const GenerateWork work{.model = shape.name,
                          .precision = std::string(plan::name(bench.options.precision)),
                          .threads = train::threads_of(bench.options),
                          .on_gpu = train::device_of(bench.options).kind == DeviceKind::kCuda,
                          .batch = bench.batch,
                          .prompt = bench.prompt,
                          .tokens = bench.tokens,
                          .parameter_bytes = read_per_token(shape) * size_of(dtype)};
  Writers writers;
  writers.push_back(std::make_unique<Writer>("lockstep", our_generator(bench), interrupt));
  if (bench.peers) add_peers(bench, work, interrupt, writers);
  for (const auto& one : writers) one->warm_up();
  for (int round = 0; round < bench.rounds; ++round) {
    for (const auto& one : writers) {
      show(fmt::format("text {} of {}: {}", round + 1, bench.rounds, one->name()));
      one->write();
    }
  }
  show("");
  std::vector<GenerateResult> results;
  for (const auto& one : writers) results.push_back(one->finish());
  print_at_once(generate_table(work, results));
  if (!bench.json.empty()) {
    write_file(bench.json, generate_json(work, results));
    print_at_once(fmt::format("wrote {} results to {}\n", results.size(), bench.json.string()));
  }
  return results.front().problem.empty();
}

}  // namespace lockstep::bench
