#include "lockstep/bench/collectives/communicator_subject.h"

#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/bench/collectives/implementation.h"
#include "lockstep/comm/native/threads.h"

namespace lockstep::bench {
namespace {

// All ranks carry out `tasks` one after another; the replies of all of them.
std::vector<Reply> perform_all(int ranks, const std::vector<Task>& tasks) {
  std::mutex mutex;
  std::vector<Reply> replies;
  run_threads(ranks, [&](Communicator& world) {
    CommunicatorSubject subject(world);
    Worker worker(subject);
    for (const Task& task : tasks) {
      const Reply reply = worker.perform(task);
      const std::lock_guard lock(mutex);
      replies.push_back(reply);
    }
  });
  return replies;
}

TEST(CommunicatorSubject, DoesEveryOpRightInBothKindsOfMemory) {
  for (const int ranks : {1, 2, 3}) {
    std::vector<Task> tasks;
    for (const Collective op : kBenchOps) {
      for (const char* flavour : {kSymmetric, kPrivate, kSymmetric}) {
        for (const std::size_t bytes : {8u, 100'000u}) {
          tasks.push_back({.op = op,
                           .bytes = whole_bytes(op, DType::kF32, ranks, bytes),
                           .root = ranks - 1,
                           .flavour = flavour,
                           .warmup = 1,
                           .iterations = 3});
        }
      }
    }
    const auto replies = perform_all(ranks, tasks);
    ASSERT_EQ(replies.size(), tasks.size() * static_cast<std::size_t>(ranks));
    for (const Reply& reply : replies) {
      EXPECT_EQ(reply.error, "");
      EXPECT_EQ(reply.wrong, "");
      EXPECT_EQ(reply.seconds.size(), 3u);
      EXPECT_NE(reply.algorithm, "");
    }
  }
}

TEST(CommunicatorSubject, ForcesTheAlgorithmAskedFor) {
  const Task task{
      .bytes = 4096, .flavour = kSymmetric, .algorithm = "ring", .warmup = 1, .iterations = 2};
  for (const Reply& reply : perform_all(2, {task})) {
    EXPECT_EQ(reply.error, "");
    EXPECT_EQ(reply.wrong, "");
    EXPECT_EQ(reply.algorithm, "ring");
  }
}

}  // namespace
}  // namespace lockstep::bench
