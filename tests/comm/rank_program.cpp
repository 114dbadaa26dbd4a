// One rank of a job that goes wrong on purpose; started by failure_proc_test.cpp through the
// launcher. What the rank experiences goes to $DIR/error-RANK:
//   <code> <ranks, comma-separated> <steady clock in ns when noticed> <message>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/launch/make_world.h"
#include "tests/comm/hierarchical/host_levels.h"

namespace {

using namespace lockstep;

std::filesystem::path folder() { return std::getenv("DIR"); }

void write_file(const std::string& name, const std::string& text) {
  std::ofstream(folder() / (name + ".part")) << text;
  std::filesystem::rename(folder() / (name + ".part"), folder() / name);
}

// Collectives of many sizes until something breaks.
void loop(Communicator& world) {
  const SymmetricBuffer memory = world.allocate(1 << 20);
  std::vector<float> data(1 << 18, 1.0f);
  for (std::size_t i = 0;; ++i) {
    const std::size_t count = std::size_t{1} << (i % 18);
    if (i % 2 == 0) {
      world.all_reduce(std::span(data).first(count));
    } else {
      world.all_reduce(memory.as<float>().first(count));
    }
    if (i == 100) write_file("running-" + std::to_string(world.rank()), std::to_string(::getpid()));
  }
}

// Rank 1 calls something else than the others.
void disagree(Communicator& world, const std::string& how) {
  const bool odd = world.rank() == 1;
  std::vector<float> data(1000);
  std::vector<std::int32_t> others(1000);
  world.barrier();
  if (how == "count") {
    world.all_reduce(std::span(data).first(odd ? 999 : 1000));
  } else if (how == "dtype") {
    odd ? world.all_reduce(others) : world.all_reduce(data);
  } else if (how == "operation") {
    odd ? world.all_reduce(data, ReduceOp::kMax) : world.all_reduce(data);
  } else if (how == "root") {
    world.broadcast(data, odd ? 1 : 0);
  } else if (how == "collective") {
    odd ? world.barrier() : world.all_reduce(data);
  } else if (how == "allocation") {
    world.allocate(odd ? 8192 : 4096);
  } else if (how == "message" && world.rank() < 2) {
    odd ? world.signal(0) : world.wait_signal(1);
    odd ? world.receive(std::span(data).first(10), 0) : world.send(std::span(data).first(11), 1);
  }
  world.barrier();
}

void disagree_at_last(Communicator& world) {
  std::vector<float> data(10);
  world.barrier();
  world.broadcast(data, world.rank());
}

void agree_to_the_last(Communicator& world) {
  std::vector<float> data(10);
  for (int i = 0; i < 100; ++i) world.broadcast(data, i % world.size());
  const auto half = world.split(world.rank() % 2, 0);
  half->broadcast(data, 0);
}

void stop_rank(Communicator& world) {
  world.barrier();
  if (world.rank() == 1) ::raise(SIGSTOP);
  world.barrier();
}

// Ranks 1 and 2 stay away from what the others do.
void stay_away(Communicator& world, const std::string& how) {
  std::vector<float> data(10);
  std::vector<float> all(data.size() * static_cast<std::size_t>(world.size()));
  world.barrier();
  if (world.rank() == 1 || world.rank() == 2) ::pause();
  if (how == "all_gather") world.all_gather(data, all);
  if (how == "split") world.split(0, 0);
  if (how == "receive") world.receive(data, 1);
  if (how == "wait_signal") world.wait_signal(2);
}

void abort_rank(Communicator& world) {
  world.barrier();
  if (world.rank() == 1) world.abort("the disk is full");
  world.barrier();
}

// The same on a hierarchical communicator.
void levels(Communicator& world, const std::string& how) {
  const auto group = testing::host_levels(world.split(0, world.rank()));
  if (how == "loop") loop(*group);
  if (how == "away") stay_away(*group, "all_gather");
}

void run(Communicator& world, const std::string& what, const std::string& how) {
  if (what == "loop") loop(world);
  if (what == "disagree") disagree(world, how);
  if (what == "last") disagree_at_last(world);
  if (what == "agree") agree_to_the_last(world);
  if (what == "stop") stop_rank(world);
  if (what == "away") stay_away(world, how);
  if (what == "levels") levels(world, how);
  if (what == "abort") abort_rank(world);
  if (what == "leave") world.barrier();
}

}  // namespace

int main(int argc, char** argv) {
  auto world = make_world();
  const std::string rank = std::to_string(world->rank());
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    run(*world, what, argc > 2 ? argv[2] : "");
    if (what == "leave") {
      if (world->rank() == 1) return 0;
      world->barrier();
    }
  } catch (const Error& error) {
    const auto now = SteadyClock::now().time_since_epoch();
    std::string ranks;
    for (int culprit : error.ranks()) {
      ranks += fmt::format("{}{}", ranks.empty() ? "" : ",", culprit);
    }
    write_file("error-" + rank, fmt::format("{} {} {} {}", static_cast<int>(error.code()),
                                            ranks.empty() ? "-" : ranks,
                                            std::chrono::nanoseconds(now).count(), error.what()));
    return 3;
  }
  return 0;
}
