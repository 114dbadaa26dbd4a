// Never a hang, never a wrong sum: real ranks are killed, stopped and made to disagree.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <latch>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <thread>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/history.h"
#include "lockstep/comm/native/fabric.h"
#include "lockstep/comm/native/memory.h"
#include "lockstep/comm/native/recorder.h"
#include "lockstep/comm/native/threads.h"
#include "tests/launch/rank_report.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using testing::eventually;
using testing::Launched;
using testing::read_text;

constexpr int kRanks = 4;

class Failure : public ::testing::TestWithParam<const char*> {
 protected:
  static Launched start(std::vector<std::string> program, const std::string& timeout = "60s",
                        const std::string& recorder_dir = "", const std::string& grace = "5s") {
    std::vector<std::string> arguments = {"-n", std::to_string(kRanks),        "--grace", grace,
                                          "--", in_build("tests/rank_program")};
    arguments.insert(arguments.end(), program.begin(), program.end());
    return Launched(arguments, {std::string("LOCKSTEP_COMM_TRANSPORT=") + GetParam(),
                                "LOCKSTEP_COMM_TIMEOUT=" + timeout, "LOCKSTEP_COMM_MEASURE=false",
                                "LOCKSTEP_COMM_RECORDER_DIR=" + recorder_dir});
  }

  static std::optional<testing::RankReport> report_of(const Launched& job, int rank) {
    return testing::report_of(job, rank, std::chrono::seconds(30));
  }

  // "operation 4" of "rank 1 called operation 4: broadcast ...", for each rank that a text speaks
  // of.
  static std::set<std::string> operations_in(const std::string& text) {
    static const std::regex called("called (operation [0-9]+)");
    std::set<std::string> found;
    for (std::sregex_iterator at(text.begin(), text.end(), called), end; at != end; ++at) {
      found.insert((*at)[1]);
    }
    return found;
  }

  static std::size_t shared_memory_files() {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      ++count;
    return count;
  }
};

TEST_P(Failure, EverySurvivorNamesAKilledRankWithinASecond) {
  std::mt19937 random(17);
  const std::size_t before = shared_memory_files();
  for (int attempt = 0; attempt < 25; ++attempt) {
    Launched job = start({"loop"});
    const int victim = static_cast<int>(random() % kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      ASSERT_TRUE(eventually([&] { return job.has_file("running-" + std::to_string(rank)); }))
          << job.err();
    }
    // A random moment of a random operation.
    const auto moment = SteadyClock::now() + std::chrono::microseconds(random() % 20'000);
    while (SteadyClock::now() < moment) cpu_relax();
    const std::chrono::nanoseconds killed = SteadyClock::now().time_since_epoch();
    ::kill(std::stoi(read_text(job.folder() / ("running-" + std::to_string(victim)))), SIGKILL);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (rank == victim) continue;
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << "rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
      EXPECT_EQ(report->ranks, std::to_string(victim)) << report->message;
      EXPECT_LT(report->when - killed, std::chrono::seconds(1)) << report->message;
    }
    EXPECT_EQ(job.wait(), 128 + SIGKILL) << job.err();
    EXPECT_TRUE(job.leaves_nobody());
    EXPECT_NE(job.err().find("rank " + std::to_string(victim)), std::string::npos) << job.err();
  }
  EXPECT_EQ(shared_memory_files(), before);
}

// The local addresses, as the kernel writes them, of the TCP sockets that a process listens on.
std::vector<std::string> listening_addresses(int process) {
  const std::filesystem::path folder = "/proc/" + std::to_string(process);
  std::set<std::string> inodes;
  for (const auto& entry : std::filesystem::directory_iterator(folder / "fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    constexpr std::string_view kSocket = "socket:[";
    if (target.starts_with(kSocket))
      inodes.emplace(target, kSocket.size(), target.find(']') - kSocket.size());
  }
  std::vector<std::string> addresses;
  for (const char* table : {"net/tcp", "net/tcp6"}) {
    std::ifstream lines(folder / table);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      if (state == "0A" && inodes.contains(inode)) addresses.push_back(local);
    }
  }
  return addresses;
}

TEST_P(Failure, NothingListensBeyondTheLoopbackUnlessAskedTo) {
  Launched job = start({"loop"});
  for (int rank = 0; rank < kRanks; ++rank) {
    ASSERT_TRUE(eventually([&] { return job.has_file("running-" + std::to_string(rank)); }))
        << job.err();
  }
  std::size_t listening = 0;
  for (const pid_t process : job.survivors()) {
    for (const std::string& address : listening_addresses(process)) {
      constexpr std::string_view kLoopback = "0100007F:";  // 127.0.0.1 as a little-endian number
      EXPECT_TRUE(address.starts_with(kLoopback)) << address;
      ++listening;
    }
  }
  EXPECT_GE(listening, 1u) << "the launcher serves the rendezvous";
  ::kill(std::stoi(read_text(job.folder() / "running-0")), SIGKILL);
  job.wait();
}

TEST_P(Failure, RanksThatDisagreeAreToldWhoCalledWhat) {
  for (const std::string how :
       {"count", "dtype", "operation", "root", "collective", "allocation", "message"}) {
    Launched job = start({"disagree", how}, "20s");
    const int involved = how == "message" ? 2 : kRanks;
    for (int rank = 0; rank < involved; ++rank) {
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << how << ": rank " << rank << " noticed nothing: " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kMismatch) << how << ": " << report->message;
      EXPECT_NE(report->message.find("disagree"), std::string::npos) << report->message;
      EXPECT_LE(operations_in(report->message).size(), 1u) << how << ": " << report->message;
      if (how == "root") {
        EXPECT_NE(report->message.find("root 0"), std::string::npos) << report->message;
        EXPECT_NE(report->message.find("root 1"), std::string::npos) << report->message;
      }
    }
    EXPECT_NE(job.wait(), 0);
  }
}

TEST_P(Failure, AStoppedRankIsNamedAtTheDeadline) {
  // Long enough for all ranks to report before the launcher ends the stopped one.
  Launched job = start({"stop"}, "2s", "", "2s");
  for (int rank : {0, 2, 3}) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kTimeout) << report->message;
    EXPECT_EQ(report->ranks, "1") << report->message;
    EXPECT_NE(report->message.find("barrier"), std::string::npos) << report->message;
  }
  EXPECT_NE(job.wait(), 0);
  EXPECT_TRUE(job.leaves_nobody());
}

TEST_P(Failure, ATimeoutSaysWhatWasWaitedForAndForWhom) {
  const std::tuple<std::string, std::string, std::string> cases[] = {
      {"all_gather", "operation 2: all_gather of 10 f32: waited ", " for ranks 1 and 2; they are "},
      {"split", "operation 2: split: waited ", " for ranks 1 and 2; they are "},
      {"receive", "receive 1 of 10 f32 from rank 1: waited ", " for rank 1; it is "},
      {"wait_signal", "wait_signal: waited ", " for rank 2; it is "}};
  for (const auto& [how, what, whom] : cases) {
    Launched job = start({"away", how}, "1s", "", "1s");
    for (int rank : {0, 3}) {
      const auto report = report_of(job, rank);
      ASSERT_TRUE(report) << how << ": " << job.err();
      EXPECT_EQ(report->code, ErrorCode::kTimeout) << report->message;
      EXPECT_TRUE(report->message.starts_with(what)) << report->message;
      EXPECT_NE(report->message.find(whom), std::string::npos) << report->message;
    }
    EXPECT_NE(job.wait(), 0);
  }
}

TEST_P(Failure, AMessageOfAnotherSizeNamesBothEnds) {
  Launched job = start({"disagree", "message"}, "20s");
  const auto report = report_of(job, 1);
  ASSERT_TRUE(report) << job.err();
  EXPECT_EQ(report->message,
            "ranks disagree on message 1: rank 0 sends 11 f32 to rank 1, which receives 10 f32");
}

TEST_P(Failure, AbortReachesEveryRankWithItsReason) {
  Launched job = start({"abort"});
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kAborted);
    EXPECT_EQ(report->message, "rank 1 aborted: the disk is full");
  }
  EXPECT_NE(job.wait(), 0);
}

TEST_P(Failure, ARankThatLeftIsNamed) {
  Launched job = start({"leave"});
  for (int rank : {0, 2, 3}) {
    const auto report = report_of(job, rank);
    ASSERT_TRUE(report) << job.err();
    EXPECT_EQ(report->code, ErrorCode::kPeerLost) << report->message;
    EXPECT_EQ(report->ranks, "1") << report->message;
  }
  EXPECT_NE(job.wait(), 0);
}

// Every rank takes itself for the root, so no rank waits; the rank that closes last detects it.
TEST_P(Failure, ADisagreementInTheLastOperationFailsTheJob) {
  Launched job = start({"last"});
  EXPECT_EQ(job.wait(), 1);
  EXPECT_NE(job.err().find("ranks disagree"), std::string::npos) << job.err();
  EXPECT_EQ(operations_in(job.err()).size(), 1u) << job.err();
}

TEST_P(Failure, RanksThatAgreedToTheLastEndWithoutAWord) {
  Launched job = start({"agree"});
  EXPECT_EQ(job.wait(), 0);
  EXPECT_EQ(job.err(), "");
}

TEST_P(Failure, TheRecorderDumpNamesTheLastOperations) {
  const ScratchFolder dumps;
  Launched job = start({"disagree", "message"}, "20s", dumps.path());
  EXPECT_NE(job.wait(), 0);
  const auto expect_in_dump = [&](int rank, const std::vector<std::string>& phrases) {
    const std::string text = read_text(dumps.path() / ("rank-" + std::to_string(rank) + ".txt"));
    for (const std::string& phrase : phrases) {
      EXPECT_NE(text.find(phrase), std::string::npos) << "no \"" << phrase << "\" in: " << text;
    }
  };
  expect_in_dump(0, {"ranks disagree", "last operations of rank 0", ": barrier: took",
                     "wait for signal 1 from rank 1: took", "send 1: 11 f32 to rank 1"});
  expect_in_dump(1, {"ranks disagree", "last operations of rank 1", ": barrier: took",
                     "signal 1 to rank 0: took", "receive 1: 10 f32 from rank 0", "not ended"});
}

TEST_P(Failure, ADumpThatCannotBeWrittenIsSaid) {
  const ScratchFolder dumps;
  const std::string missing = dumps.path() / "missing";
  Launched job = start({"disagree", "count"}, "20s", missing);
  const auto report = report_of(job, 0);
  ASSERT_TRUE(report) << job.err();
  EXPECT_EQ(report->code, ErrorCode::kMismatch) << report->message;
  EXPECT_NE(job.wait(), 0);
  EXPECT_NE(job.err().find("cannot write " + missing + "/rank-"), std::string::npos) << job.err();
  EXPECT_NE(job.err().find("comm.recorder_dir"), std::string::npos) << job.err();
}

INSTANTIATE_TEST_SUITE_P(Transports, Failure, ::testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

TEST(Closing, WhatWasStartedEndsFirst) {
  auto world = make_thread_world(2);
  const std::vector<float> in(std::size_t{1} << 20, 7.0f);  // more than fits between two ranks
  std::vector<float> out(in.size());
  std::latch closing(1);
  std::thread sender([&] {
    world[0]->start(send(in, 1));
    closing.count_down();
    world[0].reset();  // cannot end before the receiver takes what does not fit
  });
  std::thread receiver([&] {
    closing.wait();
    world[1]->receive(out, 0);
  });
  sender.join();
  receiver.join();
  EXPECT_EQ(out, in);
}

Fingerprint broadcast_number(std::uint64_t sequence, int root) {
  std::vector<float> data(10);
  return fingerprint_of(broadcast(data, root), sequence);
}

TEST(History, ComparesOnlyTheNumbersItKnows) {
  History history;
  EXPECT_EQ(history.last().sequence, 0u);
  EXPECT_NO_THROW(history.compare(0, 1, Fingerprint{}));
  for (std::uint64_t i = 1; i <= History::kKept + 1; ++i) history.add(broadcast_number(i, 0));
  EXPECT_EQ(history.last().sequence, History::kKept + 1);
  EXPECT_NO_THROW(history.compare(0, 1, broadcast_number(1, 1))) << "forgotten";
  EXPECT_NO_THROW(history.compare(0, 1, broadcast_number(2, 0))) << "the same";
  EXPECT_THROW(history.compare(0, 1, broadcast_number(2, 1)), Error);
  EXPECT_NO_THROW(history.compare(0, 1, broadcast_number(History::kKept + 2, 1))) << "not yet";
}

TEST(Inbox, IsSettledWhenItIsClosedAndAllFarMembersHaveParted) {
  Inbox inbox;
  inbox.members = {4, 5, 6};
  History mine;
  mine.add(broadcast_number(1, 0));
  EXPECT_FALSE(inbox.part(5, broadcast_number(1, 0)));
  EXPECT_FALSE(inbox.settled());
  EXPECT_FALSE(inbox.close(0, std::vector<int>{5, 6}, mine));
  EXPECT_FALSE(inbox.settled());
  const auto differs = inbox.part(6, broadcast_number(1, 2));
  EXPECT_TRUE(inbox.settled());
  ASSERT_TRUE(differs);
  const std::string said = differs->what();
  EXPECT_NE(said.find("rank 0 called operation 1: broadcast of 10 f32, root 0, but rank 2 called "
                      "operation 1: broadcast of 10 f32, root 2"),
            std::string::npos)
      << said;
}

TEST(Inbox, AQuestionEndsWithTheLastAnswer) {
  constexpr std::chrono::hours kForever(24);
  using Answers = std::map<int, std::uint64_t>;
  Inbox inbox;
  inbox.members = {4, 5, 6, 7};  // this rank is one of them
  const std::uint64_t first = inbox.ask();
  inbox.put_answer(6, first, 9);
  EXPECT_EQ(inbox.await_answers(std::chrono::nanoseconds(0)), (Answers{{2, 9}}));
  const std::uint64_t second = inbox.ask();
  inbox.put_answer(5, first, 9);
  inbox.put_answer(5, second, 3);
  inbox.put_answer(6, first, 9);
  EXPECT_EQ(inbox.await_answers(std::chrono::nanoseconds(0)), (Answers{{1, 3}})) << "one is late";
  std::thread others([&] {
    inbox.part(7, broadcast_number(4, 0));
    inbox.put_answer(6, second, 4);
  });
  EXPECT_EQ(inbox.await_answers(kForever), (Answers{{1, 3}, {2, 4}}));
  others.join();
  inbox.put_answer(7, second, 4);  // said before it parted
  EXPECT_EQ(inbox.await_answers(kForever), (Answers{{1, 3}, {2, 4}, {3, 4}}));
  inbox.ask();
  inbox.fault.report(Error(ErrorCode::kAborted, "the disk is full"));
  EXPECT_EQ(inbox.await_answers(kForever), Answers{});
}

TEST(Recorder, ManyThreadsRecordMessagesAtATime) {
  const SharedMemory memory = map_private(sizeof(shared::Area));
  auto* area = reinterpret_cast<shared::Area*>(memory.get());
  Recorder recorder(*area);
  Recorder::end(recorder.begin(broadcast_number(1, 0)));
  std::vector<std::thread> threads;
  for (int peer = 0; peer < 4; ++peer) {
    threads.emplace_back([&recorder, peer] {
      for (std::uint64_t number = 1; number <= 500; ++number) {
        recorder.end_message(
            recorder.begin_message({shared::MessageKind::kReceive, peer, number, 7}));
      }
    });
  }
  for (int i = 0; i < 100; ++i) recorded_operations(*area, 5);
  for (std::thread& thread : threads) thread.join();
  recorder.begin_message({shared::MessageKind::kWaitSignal, 2, 9});
  const std::string text = recorded_operations(*area, 5);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
  EXPECT_NE(text.find("operation 1: broadcast of 10 f32, root 0: took"), std::string::npos) << text;
  EXPECT_NE(text.find("receive 500: 7 f32 from rank"), std::string::npos) << text;
  EXPECT_NE(text.find("wait for signal 9 from rank 2: started"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep
