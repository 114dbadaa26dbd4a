// Jobs behind a proxy that changes what they send: the result is right, or there is an error that
// says between whom.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <regex>

#include "lockstep/base/log.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/comm/native/acceptor.h"
#include "tests/comm/native/proxy.h"
#include "tests/comm/native/tcp_job.h"

namespace lockstep::corruption_test {
namespace {

using testing::Proxy;
using testing::ProxyChange;
using testing::quick_job;
using testing::results_are_right;
using testing::run_job;
using testing::TcpJob;

struct Result {
  bool wrong = false;  // a rank had a wrong result and no error
  std::vector<std::optional<Error>> errors;
  bool failed() const {
    return std::ranges::any_of(errors, [](const auto& error) { return error.has_value(); });
  }
  // As a log has them: with the rank that reports them.
  std::string text() const {
    std::string all;
    for (std::size_t rank = 0; rank < errors.size(); ++rank) {
      all += fmt::format("rank {}: {}\n", rank, errors[rank] ? errors[rank]->what() : "no error");
    }
    return all;
  }
};

Result run_behind(Proxy& proxy, EncryptChoice encrypt) {
  TcpJob job = quick_job(3, encrypt);
  job.publish = [&](const HostPort& address) { return proxy.front(address); };
  std::atomic<bool> wrong = false;
  Result result;
  result.errors = run_job(job, [&](Communicator& world) {
    if (!results_are_right(world)) wrong = true;
  });
  result.wrong = wrong;
  return result;
}

// Some rank says between which ends the trouble is: two ranks, or a rank and the rendezvous.
bool names_both_ends(const Result& result) {
  static const std::regex kEnds(
      "rank [0-9][^\n]*(rank [0-9]|rendezvous server)|"
      "rendezvous server[^\n]*rank [0-9]");
  return std::regex_search(result.text(), kEnds);
}

std::uint64_t bytes_of_a_job(EncryptChoice encrypt) {
  Proxy proxy;
  const Result result = run_behind(proxy, encrypt);
  EXPECT_FALSE(result.wrong || result.failed()) << result.text();
  return proxy.forwarded();
}

class Corruption : public ::testing::TestWithParam<EncryptChoice> {};
INSTANTIATE_TEST_SUITE_P(, Corruption, ::testing::Values(EncryptChoice::kOff, EncryptChoice::kOn),
                         [](const auto& each) {
                           return each.param == EncryptChoice::kOn ? "Encrypted" : "Checksummed";
                         });

TEST_P(Corruption, NoFlippedBitIsSilent) {
  constexpr int kFlips = 200;
  const std::uint64_t bytes = bytes_of_a_job(GetParam());
  std::mt19937_64 draw(17);
  int flipped = 0;
  int errors = 0;
  int named_corruption = 0;
  for (int i = 0; i < kFlips; ++i) {
    Proxy proxy({ProxyChange::kFlip, draw() % bytes, static_cast<int>(draw() % 8)});
    const Result result = run_behind(proxy, GetParam());
    flipped += proxy.has_changed() ? 1 : 0;
    EXPECT_FALSE(result.wrong) << "a flipped bit changed a result in silence";
    if (!result.failed()) continue;
    ++errors;
    EXPECT_TRUE(names_both_ends(result)) << result.text();
    named_corruption += result.text().find("corrupted") != std::string::npos ? 1 : 0;
  }
  fmt::print("{} bits flipped in {} bytes: {} errors, {} of them about corrupted data\n", flipped,
             bytes, errors, named_corruption);
  EXPECT_GE(flipped, kFlips - 10);
  EXPECT_GE(named_corruption, kFlips / 2) << "most bytes are data of operations";
}

TEST_P(Corruption, ACutConnectionIsNeverSilent) {
  constexpr int kCuts = 30;
  const std::uint64_t bytes = bytes_of_a_job(GetParam());
  std::mt19937_64 draw(18);
  for (int i = 0; i < kCuts; ++i) {
    Proxy proxy({ProxyChange::kCut, draw() % bytes, 0});
    const Result result = run_behind(proxy, GetParam());
    EXPECT_FALSE(result.wrong);
    if (!result.failed()) continue;
    EXPECT_NE(result.text().find("rank"), std::string::npos);
  }
}

TEST(Strangers, WithAnotherTokenNeverJoin) {
  TcpJob job = quick_job(2, EncryptChoice::kOn);
  job.options.timeout = std::chrono::seconds(3);
  job.tokens[1] = mint_token();
  const auto errors = run_job(job, [](Communicator&) { ADD_FAILURE() << "it joined"; });
  ASSERT_TRUE(errors[0] && errors[1]);
  EXPECT_EQ(errors[1]->code(), ErrorCode::kUnauthorized) << errors[1]->what();
}

// Connections that say nothing, or nonsense, at every address of the job and for as long as it
// runs.
TEST(Strangers, FiveHundredHalfOpenOnesDoNotDisturbAJob) {
  for (const EncryptChoice encrypt : {EncryptChoice::kOff, EncryptChoice::kOn}) {
    TcpJob job = quick_job(3, encrypt);
    job.options.timeout = std::chrono::seconds(30);
    std::mutex mutex;
    std::vector<UniqueFd> strangers;
    job.publish = [&](const HostPort& address) {
      const std::lock_guard lock(mutex);
      for (int i = 0; i < 500; ++i) {
        UniqueFd stranger = connect_tcp(address, deadline_in(std::chrono::seconds(20)));
        if (i % 5 == 0) {
          const std::byte nonsense[40] = {std::byte{0xa5}};
          [[maybe_unused]] const ssize_t sent =
              ::send(stranger.get(), nonsense, sizeof nonsense, MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        strangers.push_back(std::move(stranger));
      }
      return address;
    };
    const auto errors = run_job(job, [&](Communicator& world) {
      EXPECT_TRUE(results_are_right(world));
      // They are still there while a part of the job meets again, at ports of its own.
      const auto half = world.split(world.rank() % 2, 0);
      EXPECT_TRUE(results_are_right(world));
    });
    for (const auto& error : errors) EXPECT_FALSE(error) << error->what();
    EXPECT_GE(strangers.size(), 500u * 7) << "one rendezvous, two listeners of each rank";
  }
}

// What a rank has sent while it joined, sent once more, opens nothing.
TEST(Strangers, AReplayedRecordingIsRefused) {
  const Token token = mint_token();
  const Hello hello{.tag = 7, .from = 3, .purpose = Purpose::kControl};
  const EncryptionPolicy always{EncryptChoice::kOn};
  const auto soon = [] { return deadline_in(std::chrono::seconds(20)); };
  Acceptor acceptor(token, 1, always);
  Listener listener = listen_tcp({"127.0.0.1", 0});
  const HostPort address = listener.address;
  acceptor.open(std::move(listener.fd), false);
  Proxy proxy;
  const HostPort front = proxy.front(address);
  const ProvenSocket mine = connect_as(
      hello, [&] { return connect_tcp(front, soon()); }, token, soon(), always);
  const Visitor visitor = acceptor.await(hello, soon());
  EXPECT_TRUE(mine.protection.encrypted);
  EXPECT_EQ(mine.protection.to_peer, visitor.protection.from_peer);
  EXPECT_EQ(mine.protection.from_peer, visitor.protection.to_peer);
  EXPECT_NE(mine.protection.from_peer, mine.protection.to_peer);
  const std::vector<std::byte> recording = proxy.recordings().front();
  ASSERT_EQ(recording.size(), sizeof(Answer) + sizeof(Hello));
  const UniqueFd replay = connect_tcp(address, soon());
  Challenge challenge;
  receive_all(replay.get(), challenge, soon());
  send_all(replay.get(), recording, soon());
  Verdict verdict;
  receive_all(replay.get(), verdict, soon());
  EXPECT_EQ(verdict, kRefused);
  EXPECT_THROW(acceptor.await(hello, deadline_in(std::chrono::milliseconds(200))), Error);
}

// Either end is enough, and a wish cannot be taken out on the way.
TEST(Strangers, CannotTalkTheEndsOutOfEncryption) {
  const Token token = mint_token();
  const auto soon = [] { return deadline_in(std::chrono::seconds(20)); };
  for (const bool server_wants : {false, true}) {
    for (const bool client_wants : {false, true}) {
      const Listener listener = listen_tcp({"127.0.0.1", 0});
      const UniqueFd client = connect_tcp(listener.address, soon());
      const UniqueFd server = accept_connection(listener.fd.get(), soon());
      Protection of_server;
      std::jthread thread(
          [&] { of_server = prove_to_client(server.get(), token, "job", soon(), server_wants); });
      const Protection of_client =
          prove_to_server(client.get(), token, "job", soon(), client_wants);
      thread.join();
      EXPECT_EQ(of_client.encrypted, server_wants || client_wants);
      EXPECT_EQ(of_server.encrypted, of_client.encrypted);
      EXPECT_EQ(of_server.from_peer, of_client.to_peer);
    }
  }
  const ServerHandshake handshake(token, "job", true);
  // The challenge as a client without the wish sees it once the server's wish is gone.
  const Listener listener = listen_tcp({"127.0.0.1", 0});
  const UniqueFd client = connect_tcp(listener.address, soon());
  const UniqueFd server = accept_connection(listener.fd.get(), soon());
  Challenge changed = handshake.challenge();
  changed[kMagicBytes] = std::byte{0};
  send_all(server.get(), changed, soon());
  std::jthread thread(
      [&] { EXPECT_THROW(prove_to_server(client.get(), token, "job", soon(), false), Error); });
  Answer answer;
  receive_all(server.get(), answer, soon());
  EXPECT_FALSE(handshake.judge(answer));
  send_all(server.get(), kRefused, soon());
}

}  // namespace
}  // namespace lockstep::corruption_test
