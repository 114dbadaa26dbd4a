#include "lockstep/bench/data_parallel/peer.h"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/bench/train/peer_environment.h"
#include "lockstep/bench/train/python.h"

namespace lockstep::bench::data_parallel {
namespace {

namespace fs = std::filesystem;

// Of the arguments that all ranks have.
std::vector<std::string> peer_arguments(const Session& session, const std::string& python,
                                        const train::RunOptions& options, const PeerWay& way,
                                        const fs::path& result) {
  const plan::ModelShape shape = train::shape_of(options.train);
  std::vector<std::string> arguments{
      python,        (session.bench().peers_folder / way.script).string(),
      "--json",      result.string(),
      "--precision", std::string(plan::name(options.train.precision))};
  arguments.insert(arguments.end(), way.arguments.begin(), way.arguments.end());
  const auto add = [&](const char* flag, auto value) {
    arguments.insert(arguments.end(), {flag, fmt::to_string(value)});
  };
  add("--steps", options.steps);
  add("--batch", options.train.batch.sequences);
  add("--sequence", options.train.batch.sequence);
  add("--layers", shape.layers);
  add("--hidden", shape.hidden);
  add("--heads", shape.heads);
  add("--feed-forward", shape.feed_forward);
  add("--vocabulary", shape.vocabulary);
  add("--positions", shape.positions);
  return arguments;
}

// A port that is free now and on which the ranks will meet.
std::uint16_t free_port() { return listen_tcp({"127.0.0.1", 0}).address.port; }

// The variables that torchrun sets.
Program peer_rank(const std::vector<std::string>& arguments, int rank, int ranks,
                  std::uint16_t port) {
  Program program{arguments, peer_environment(1)};
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int>>{{"RANK", rank},
                                                          {"LOCAL_RANK", rank},
                                                          {"WORLD_SIZE", ranks},
                                                          {"LOCAL_WORLD_SIZE", ranks},
                                                          {"MASTER_PORT", port}}) {
    program.environment.emplace_back(key, std::to_string(value));
  }
  program.environment.emplace_back("MASTER_ADDR", "127.0.0.1");
  program.environment.emplace_back("GLOO_SOCKET_IFNAME", "lo");
  return program;
}

// Until all have ended or one has failed: then the others will not end by themselves.
std::string wait_for_ranks(std::vector<std::unique_ptr<Process>>& ranks,
                           const Interrupt& interrupt) {
  std::vector<pollfd> watched{{interrupt.fd(), POLLIN, 0}};
  for (const auto& rank : ranks) watched.push_back({rank->ended_fd(), POLLIN, 0});
  for (std::size_t left = ranks.size(); left > 0;) {
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
      fail_errno("cannot wait for a peer", errno);
    }
    interrupt.check();
    for (std::size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].fd < 0 || watched[i].revents == 0) continue;
      Process& rank = *ranks[i - 1];
      rank.wait_until(kNoDeadline);
      watched[i].fd = -1;  // poll() leaves it out
      --left;
      if (const std::string problem = problem_of(rank); !problem.empty()) {
        return fmt::format("rank {}: {}", i - 1, problem);
      }
    }
  }
  return "";
}

Trained read_peer(const fs::path& result) {
  Trained trained;
  std::ifstream file(result);
  const auto json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object() || !json.contains("seconds") || !json["seconds"].is_array()) {
    trained.problem = "the peer wrote no result";
    return trained;
  }
  for (const auto& seconds : json["seconds"]) {
    TrainedStep step;
    step.tokens = json.value("tokens", 0.0);
    step.seconds = seconds.get<double>();
    step.memory_bytes = json.value("peak_bytes", 0.0);
    trained.steps.push_back(step);
  }
  return trained;
}

Trained train_peer(const Session& session, const std::string& python,
                   const train::RunOptions& options, const PeerWay& way) {
  const ScratchFolder folder;
  const fs::path result = folder.path() / "result.json";
  const auto arguments = peer_arguments(session, python, options, way, result);
  const int ranks = session.bench().ranks;
  const std::uint16_t port = free_port();
  std::vector<std::unique_ptr<Process>> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.push_back(std::make_unique<Process>(peer_rank(arguments, rank, ranks, port)));
  }
  const std::string problem = wait_for_ranks(processes, session.interrupt());
  if (!problem.empty()) return {.problem = problem};
  return read_peer(result);
}

std::string why_not(const Session& session, const train::RunOptions& options) {
  if (train::family_of(options.train) != train::ModelFamily::kGpt2 ||
      options.train.model.activation != train::ActivationChoice::kAuto) {
    return "the PyTorch peer supports the family gpt2 only, with its own activation";
  }
  if (options.train.batch.sequences % session.bench().ranks != 0) {
    return fmt::format("{} sequences cannot be split evenly over {} ranks",
                       options.train.batch.sequences, session.bench().ranks);
  }
  return "";
}

}  // namespace

std::span<const PeerWay> ddp_ways() {
  constexpr std::string_view kScript = "ddp_pytorch.py";
  static const std::vector<PeerWay> kWays{
      {"pytorch-ddp eager", kScript, {"--mode", "eager", "--reduce", "f32"}},
      {"pytorch-ddp eager, bf16 hook", kScript, {"--mode", "eager", "--reduce", "bf16"}},
      {"pytorch-ddp compile", kScript, {"--mode", "compile", "--reduce", "f32"}},
      {"pytorch-ddp compile, bf16 hook", kScript, {"--mode", "compile", "--reduce", "bf16"}}};
  return kWays;
}

void add_peers(Session& session, std::string_view name, const train::RunOptions& options,
               std::span<const PeerWay> ways, std::vector<Turn>& turns) {
  std::string problem = why_not(session, options);
  Python python;
  if (problem.empty()) {
    python = find_python(session.bench().python, session.bench().command);
    problem = python.problem;
  }
  for (const PeerWay& way : ways) {
    Turn turn;
    turn.setting = way.name;
    turn.problem = problem;
    turn.ours = false;
    turn.once = [&session, &way, options, name = std::string(name), program = python.program] {
      return session.told(name, way.name,
                          [&] { return train_peer(session, program, options, way); });
    };
    turns.push_back(std::move(turn));
  }
}

}  // namespace lockstep::bench::data_parallel
