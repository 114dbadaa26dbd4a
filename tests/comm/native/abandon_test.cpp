// A rank that leaves its communicators because it was told to, not because of what it has noticed.
#include <gtest/gtest.h>

#include <chrono>
#include <latch>
#include <optional>
#include <stop_token>
#include <thread>

#include "tests/comm/native/tcp_job.h"

namespace lockstep {
namespace {

std::optional<ErrorCode> code_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}

// Rank 0 waits in a group for a message that nobody sends; then it can use neither that group nor
// the world. The others stay until it has left.
TEST(Abandon, EndsAllCommunicatorsOfARankOverTcp) {
  std::latch left(1);
  std::stop_source stop;
  testing::TcpJob job = testing::quick_job(3, EncryptChoice::kOff);
  job.stop = stop.get_token();
  const auto ends = testing::run_job(job, [&](Communicator& world) {
    const std::unique_ptr<Communicator> group = world.split(0, world.rank());
    if (world.rank() != 0) return left.wait();
    std::jthread other([&] { stop.request_stop(); });
    int number = 0;
    EXPECT_EQ(code_of([&] { group->receive(std::span(&number, 1), 1); }), ErrorCode::kAborted);
    EXPECT_EQ(code_of([&] { group->barrier(); }), ErrorCode::kAborted);
    EXPECT_EQ(code_of([&] { world.barrier(); }), ErrorCode::kAborted);
    left.count_down();
  });
  for (const auto& error : ends) EXPECT_FALSE(error) << error->what();
}

// Rank 1 has the address of rank 0, and dies before it connects to it.
TEST(Abandon, EndsTheWaitForARankThatDoesNotConnect) {
  std::stop_source stop;
  testing::TcpJob job = testing::quick_job(2, EncryptChoice::kOff);
  job.options.timeout = std::chrono::minutes(5);
  job.stop = stop.get_token();
  job.has_contacts = [&](int rank) {
    if (rank == 0) return;
    stop.request_stop();
    fail(ErrorCode::kSystem, "dies");
  };
  const auto ends = testing::run_job(job, [](Communicator&) { ADD_FAILURE() << "they have met"; });
  ASSERT_TRUE(ends[0]);
  EXPECT_EQ(ends[0]->code(), ErrorCode::kAborted);
}

}  // namespace
}  // namespace lockstep
