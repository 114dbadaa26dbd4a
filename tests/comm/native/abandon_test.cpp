// A rank that leaves its communicators because it was told to, not because of what it has noticed.
#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/comm/native/group_communicator.h"
#include "lockstep/comm/native/threads.h"
#include "tests/comm/native/tcp_job.h"

namespace lockstep {
namespace {

// Rank 0 waits in a group for a message that nobody sends; then it can use neither that group nor
// the world. The others stay until it has left.
void leave_while_waiting(Communicator& world, std::latch& left) {
  const std::unique_ptr<Communicator> group = world.split(0, world.rank());
  if (world.rank() != 0) return left.wait();
  std::jthread other(
      [&] { dynamic_cast<GroupCommunicator&>(world).abandon("the launcher has lost node 1"); });
  int number = 0;
  const auto code_of = [](const auto& call) -> std::optional<ErrorCode> {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("has lost node 1"), std::string::npos);
      return error.code();
    }
    return std::nullopt;
  };
  EXPECT_EQ(code_of([&] { group->receive(std::span(&number, 1), 1); }), ErrorCode::kAborted);
  EXPECT_EQ(code_of([&] { group->barrier(); }), ErrorCode::kAborted);
  EXPECT_EQ(code_of([&] { world.barrier(); }), ErrorCode::kAborted);
  left.count_down();
}

TEST(Abandon, EndsAllCommunicatorsOfARankOverTcp) {
  std::latch left(1);
  const auto ends =
      testing::run_job(testing::quick_job(3, EncryptChoice::kOff),
                       [&](Communicator& world) { leave_while_waiting(world, left); });
  for (const auto& error : ends) EXPECT_FALSE(error) << error->what();
}

TEST(Abandon, EndsAllCommunicatorsOfARankThatIsAThread) {
  std::latch left(1);
  run_threads(3, [&](Communicator& world) { leave_while_waiting(world, left); });
}

}  // namespace
}  // namespace lockstep
