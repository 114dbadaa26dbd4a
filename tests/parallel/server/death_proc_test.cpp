// Workers and servers that are killed, as processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <set>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/comm/rendezvous/rendezvous.h"
#include "lockstep/launch/make_world.h"
#include "tests/parallel/server/fixture.h"

namespace lockstep::parallel::server_test {
namespace {

using ::testing::HasSubstr;

constexpr int kFinished = 0;
constexpr int kFailed = 3;
constexpr int kUnmet = 4;  // got no rendezvous address
constexpr int kKilled = 128 + SIGKILL;

// Numbers that all processes see.
struct Shared {
  pid_t pids[8];
  int shares_done;
  int hangs;    // whether a deed does
  int stopped;  // one more than the rank that a deed has stopped; 0: none
};

// What became of the ranks of a job.
struct Outcome {
  std::vector<int> codes;  // by rank: of the above
  std::vector<std::string> words;
  int shares_done = 0;
};

using Deed = std::function<void(int worker, const Share& share, Shared& shared)>;

int run_rank(const Training& training, const World& world, const std::string& words, Shared& shared,
             const Deed& deed, const Deed& after) {
  try {
    const ParameterServerJob job = job_of(training);
    CommOptions comm;
    comm.measure = false;
    const std::unique_ptr<Communicator> all = make_world(world, comm);
    if (is_server(training.servers, world.rank, world.size)) {
      serve(job, *all);
      return kFinished;
    }
    const std::unique_ptr<Strategy> strategy = make_parameter_server(job, *all);
    const Hooks hooks{
        .before_share = [&](int worker, const Share& share) { deed(worker, share, shared); },
        .after_share =
            [&](int worker, const Share& share, const StepSummary&) {
              __atomic_fetch_add(&shared.shares_done, 1, __ATOMIC_RELAXED);
              if (after) after(worker, share, shared);
            }};
    train_worker(training, *strategy, hooks);
    return kFinished;
  } catch (const Error& error) {
    std::string text = fmt::format("{}: {}; ranks", name(error.code()), error.what());
    for (const int rank : error.ranks()) text += fmt::format(" {}", rank);
    write_file(words, text);
    return kFailed;
  }
}

// `deed` before every share, `after` behind it.
Outcome run_job(const Training& training, const Deed& deed, const Deed& after = {}) {
  const ScratchFolder folder;
  const Token token = mint_token();
  ::setenv(kTokenVariable, token_text(token).c_str(), 1);
  auto& shared = *static_cast<Shared*>(
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const auto words = [&](int rank) { return (folder.path() / std::to_string(rank)).string(); };
  // Ranks are forked before the server has its thread: a lock which that held would never be free
  // in them. They learn from the pipe where it is.
  std::uint16_t port = 0;
  int told[2];
  EXPECT_EQ(::pipe(told), 0);
  for (int rank = 0; rank < training.ranks(); ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(told[1]);
      if (::read(told[0], &port, sizeof port) != sizeof port) std::_Exit(kUnmet);
      World world;
      world.rank = rank;
      world.size = training.ranks();
      world.rendezvous = {"127.0.0.1", port};
      world.rendezvous_is_hosted = true;
      std::_Exit(run_rank(training, world, words(rank), shared, deed, after));
    }
    shared.pids[rank] = pid;
  }
  const RendezvousServer meeting({"127.0.0.1", 0}, token, training.ranks());
  port = meeting.address().port;
  for (int rank = 0; rank < training.ranks(); ++rank) {
    EXPECT_EQ(::write(told[1], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  }
  ::close(told[0]);
  ::close(told[1]);
  Outcome outcome;
  outcome.codes.resize(static_cast<std::size_t>(training.ranks()));
  std::set<int> left;
  for (int rank = 0; rank < training.ranks(); ++rank) left.insert(rank);
  const Deadline deadline = deadline_in(std::chrono::seconds(60));
  while (!left.empty()) {
    // One that is stopped has to be killed when the others have ended.
    const bool only_stopped = left.size() == 1 && *left.begin() == shared.stopped - 1;
    for (const int rank : std::set<int>(left)) {
      if (only_stopped || has_passed(deadline)) ::kill(shared.pids[rank], SIGKILL);
      int status = 0;
      if (::waitpid(shared.pids[rank], &status, WNOHANG) == 0) continue;
      left.erase(rank);
      outcome.codes[static_cast<std::size_t>(rank)] =
          WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    ::poll(nullptr, 0, 5);
  }
  for (int rank = 0; rank < training.ranks(); ++rank) {
    outcome.words.push_back(std::filesystem::exists(words(rank)) ? read_file(words(rank)) : "");
  }
  outcome.shares_done = shared.shares_done;
  ::munmap(&shared, sizeof(Shared));
  return outcome;
}

TEST(ServerDeath, AWorkerThatDiesIsNamedWithBsp) {
  for (const ServerPlacement place : {ServerPlacement::kDedicated, ServerPlacement::kColocated}) {
    Training training;
    training.workers = 3;
    training.servers.placement = place;
    training.servers.slice_mb = 0.003;
    if (place == ServerPlacement::kDedicated) training.compression.compression = Compression::kInt8;
    const Outcome outcome = run_job(training, [](int worker, const Share& share, Shared&) {
      if (worker == 2 && share.step == 2) ::raise(SIGKILL);
    });
    EXPECT_EQ(outcome.codes[2], kKilled);
    for (const int rank : {0, 1}) {
      EXPECT_EQ(outcome.codes[static_cast<std::size_t>(rank)], kFailed);
      const std::string& words = outcome.words[static_cast<std::size_t>(rank)];
      EXPECT_THAT(words, HasSubstr("lost the connection to worker 2 (rank 2)"));
      EXPECT_THAT(words, HasSubstr("ranks 2"));
    }
    if (place == ServerPlacement::kDedicated) {
      EXPECT_EQ(outcome.codes[3], kFailed);
      EXPECT_THAT(outcome.words[3], HasSubstr("lost the connection to worker 2 (rank 2)"));
    }
  }
}

TEST(ServerDeath, AWorkerThatDiesIsDoneWithoutWithAspAndSsp) {
  for (const Consistency consistency : {Consistency::kAsp, Consistency::kSsp}) {
    Training training;
    training.workers = 3;
    training.steps = 4;
    training.servers = {
        .servers = 2, .consistency = consistency, .staleness = 0, .slice_mb = 0.003};
    if (consistency == Consistency::kAsp) training.compression.compression = Compression::kTopk;
    const Outcome outcome = run_job(training, [](int worker, const Share&, Shared&) {
      if (worker == 2) ::raise(SIGKILL);
    });
    EXPECT_THAT(outcome.codes, ::testing::ElementsAre(kFinished, kFinished, kKilled))
        << outcome.words[0] << outcome.words[1];
    EXPECT_EQ(outcome.shares_done, training.steps * training.workers);
  }
}

TEST(ServerDeath, AServerThatDiesIsNamed) {
  for (const Consistency consistency : {Consistency::kBsp, Consistency::kAsp}) {
    for (const int victim : {0, 1}) {
      Training training;
      training.workers = 2;
      training.steps = 1000;
      training.servers = {.servers = 2,
                          .placement = ServerPlacement::kDedicated,
                          .consistency = consistency,
                          .slice_mb = 0.003};
      if (victim == 1) training.compression.compression = Compression::kBf16;
      const Outcome outcome =
          run_job(training, [&](int worker, const Share& share, Shared& shared) {
            if (worker == 0 && share.step >= 2) ::kill(shared.pids[2 + victim], SIGKILL);
          });
      const std::string named =
          fmt::format("server {} (rank {}): its process died", victim, 2 + victim);
      EXPECT_EQ(outcome.codes[static_cast<std::size_t>(2 + victim)], kKilled);
      for (const std::size_t rank : {0u, 1u, 3u - static_cast<unsigned>(victim)}) {
        EXPECT_EQ(outcome.codes[rank], kFailed) << rank;
        EXPECT_THAT(outcome.words[rank], HasSubstr(named)) << rank;
      }
    }
  }
}

// Longer than a busy machine keeps a rank that works from running.
constexpr std::chrono::seconds kTimeout{3};

// Two workers and a server of its own, of which one will hang.
Training hanging_training(Consistency consistency) {
  Training training;
  training.workers = 2;
  training.servers.placement = ServerPlacement::kDedicated;
  training.servers.consistency = consistency;
  training.servers.staleness = 0;
  training.timeout = kTimeout;
  return training;
}

// That the rank failed because nothing came from the worker, and names it.
void expect_named(const Outcome& outcome, std::size_t rank, int worker) {
  EXPECT_EQ(outcome.codes[rank], kFailed);
  EXPECT_THAT(outcome.words[rank], HasSubstr("timeout"));
  EXPECT_THAT(outcome.words[rank], HasSubstr(fmt::format("from worker {} within", worker)));
  EXPECT_THAT(outcome.words[rank], HasSubstr(fmt::format("ranks {}", worker)));
}

// With asp worker 0 waits for it at the end of the run, with ssp as soon as it is too far ahead.
TEST(ServerDeath, AWorkerThatHangsIsNamedWhenTimeIsUp) {
  for (const Consistency consistency : {Consistency::kBsp, Consistency::kAsp, Consistency::kSsp}) {
    SCOPED_TRACE(name(consistency));
    const Training training = hanging_training(consistency);
    // Worker 1 in its first share, until worker 0 has ended, and its end was noticed; and worker 0
    // does not do all of them before.
    const auto hang = [](int worker, const Share&, Shared& shared) {
      if (worker == 1) __atomic_store_n(&shared.hangs, 1, __ATOMIC_RELAXED);
      while (__atomic_load_n(&shared.hangs, __ATOMIC_RELAXED) == 0) ::poll(nullptr, 0, 5);
      while (worker == 1 && ::kill(shared.pids[0], 0) == 0) ::poll(nullptr, 0, 5);
    };
    expect_named(run_job(training, hang), 0, 1);
  }
}

// With asp the other workers wait for worker 0 only after they have done all other shares and left;
// with ssp they wait for it earlier.
TEST(ServerDeath, AWorkerZeroThatHangsIsNamedWhenTimeIsUp) {
  for (const Consistency consistency : {Consistency::kAsp, Consistency::kSsp}) {
    SCOPED_TRACE(name(consistency));
    const Training training = hanging_training(consistency);
    // Until the server has ended, and its end was noticed; and worker 1 does not do all shares
    // before.
    const auto hang = [](int worker, const Share&, Shared& shared) {
      if (worker == 0) __atomic_store_n(&shared.hangs, 1, __ATOMIC_RELAXED);
      while (__atomic_load_n(&shared.hangs, __ATOMIC_RELAXED) == 0) ::poll(nullptr, 0, 5);
      while (worker == 0 && ::kill(shared.pids[2], 0) == 0) ::poll(nullptr, 0, 5);
    };
    expect_named(run_job(training, hang), 2, 0);
  }
}

// It has no share that others wait for, but its process sends no sign of life any more.
TEST(ServerDeath, AWorkerZeroThatIsStoppedBetweenItsSharesIsNamed) {
  Training training;
  training.workers = 2;
  training.servers.placement = ServerPlacement::kDedicated;
  training.servers.consistency = Consistency::kAsp;
  training.timeout = kTimeout;
  const auto stop = [](int worker, const Share&, Shared& shared) {
    if (worker != 1) return;
    while (__atomic_load_n(&shared.hangs, __ATOMIC_RELAXED) == 0) ::poll(nullptr, 0, 5);
    shared.stopped = 0 + 1;
    ::kill(shared.pids[0], SIGSTOP);
  };
  const auto stay = [](int worker, const Share&, Shared& shared) {
    if (worker != 0) return;
    __atomic_store_n(&shared.hangs, 1, __ATOMIC_RELAXED);
    while (true) ::pause();
  };
  const Outcome outcome = run_job(training, stop, stay);
  EXPECT_EQ(outcome.codes[0], kKilled);
  EXPECT_EQ(outcome.codes[2], kFailed);
  EXPECT_THAT(outcome.words[2], HasSubstr("from worker 0 within"));
  EXPECT_THAT(outcome.words[2], HasSubstr("ranks 0"));
}

// Workers wait for it before they have pushed what the other server waits for.
TEST(ServerDeath, AServerThatHangsWithATableOfTokensIsNamedAndNotTheWorkers) {
  Training training;
  training.wide = true;
  training.workers = 2;
  training.servers.placement = ServerPlacement::kDedicated;
  training.servers.servers = 2;
  training.timeout = kTimeout;
  const auto stop = [](int worker, const Share& share, Shared& shared) {
    if (worker != 0 || share.step != 2) return;
    shared.stopped = 3 + 1;
    ::kill(shared.pids[3], SIGSTOP);
  };
  const Outcome outcome = run_job(training, stop);
  for (const std::size_t worker : {0u, 1u}) {
    EXPECT_EQ(outcome.codes[worker], kFailed);
    EXPECT_THAT(outcome.words[worker], HasSubstr("timeout"));
    EXPECT_THAT(outcome.words[worker], HasSubstr("ranks 3"));
  }
}

}  // namespace
}  // namespace lockstep::parallel::server_test
