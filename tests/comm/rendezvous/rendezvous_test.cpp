#include "lockstep/comm/rendezvous/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <future>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/comm/rendezvous/client.h"
#include "lockstep/comm/rendezvous/handshake.h"
#include "lockstep/comm/rendezvous/node_link.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

const HostPort kAnyPort{"127.0.0.1", 0};

RendezvousOptions quiet() {
  RendezvousOptions options;
  options.notice = [](const std::string&) {};
  return options;
}

class RendezvousTest : public testing::Test {
 protected:
  std::future<std::vector<std::string>> come(const RendezvousServer& server, int rank, int size,
                                             std::string key = "bootstrap",
                                             std::chrono::milliseconds timeout = 20s) {
    return std::async(std::launch::async, [=, this, address = server.address()] {
      return exchange(address, token_, key, rank, size, "blob of " + std::to_string(rank),
                      deadline_in(timeout));
    });
  }

  template <class Result>
  static Error error_of(std::future<Result> future) {
    try {
      future.get();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error was thrown";
    return Error(ErrorCode::kSystem, "no error");
  }

  const Token token_ = mint_token();
};

// Whether the server ends the connection before the deadline.
bool is_closed(int fd) {
  char byte = 0;
  while (wait_for_fd(fd, POLLIN, deadline_in(20s))) {
    if (::recv(fd, &byte, 1, MSG_DONTWAIT) <= 0) return true;
  }
  return false;
}

TEST_F(RendezvousTest, EveryRankGetsEveryBlob) {
  for (const int size : {1, 2, 7}) {
    const RendezvousServer server(kAnyPort, token_, size, quiet());
    std::vector<std::future<std::vector<std::string>>> ranks;
    for (int rank = size - 1; rank >= 0; --rank) ranks.push_back(come(server, rank, size));
    for (auto& rank : ranks) {
      const auto blobs = rank.get();
      ASSERT_EQ(blobs.size(), static_cast<std::size_t>(size));
      for (int r = 0; r < size; ++r) {
        EXPECT_EQ(blobs[static_cast<std::size_t>(r)], "blob of " + std::to_string(r));
      }
    }
  }
}

TEST_F(RendezvousTest, KeysAreApartAndCanBeUsedAgain) {
  const RendezvousServer server(kAnyPort, token_, 2, quiet());
  for (int round = 0; round < 3; ++round) {
    auto a0 = come(server, 0, 2, "a");
    auto b1 = come(server, 1, 2, "b");
    auto b0 = come(server, 0, 2, "b");
    auto a1 = come(server, 1, 2, "a");
    for (auto* rank : {&a0, &b1, &b0, &a1}) {
      EXPECT_THAT(rank->get(), ElementsAre("blob of 0", "blob of 1"));
    }
  }
}

TEST_F(RendezvousTest, LargeBlobsArriveWhole) {
  const RendezvousServer server(kAnyPort, token_, 2, quiet());
  const std::string large(63 << 10, 'x');
  auto other = come(server, 1, 2);
  const auto blobs = exchange(server.address(), token_, "bootstrap", 0, 2, large, deadline_in(20s));
  EXPECT_EQ(blobs[0], large);
  EXPECT_EQ(other.get()[0], large);
  EXPECT_THROW(exchange(server.address(), token_, "bootstrap", 0, 2, std::string(1 << 20, 'x'),
                        deadline_in(20s)),
               Error);
}

TEST_F(RendezvousTest, ATimeoutNamesWhoIsMissing) {
  const RendezvousServer server(kAnyPort, token_, 4, quiet());
  auto zero = come(server, 0, 4);
  const Error error = error_of(come(server, 2, 4, "bootstrap", 1s));
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_THAT(error.what(), HasSubstr("ranks 1 and 3 of 4 did not reach the rendezvous in time"));
  EXPECT_THAT(error.ranks(), ElementsAre(1, 3));
  // The one that gave up is gone, so rank 0 need not wait for its own deadline.
  const Error follower = error_of(std::move(zero));
  EXPECT_EQ(follower.code(), ErrorCode::kPeerLost);
  EXPECT_THAT(follower.ranks(), ElementsAre(2));
}

// One waits for a rank that does not come, the other for a server that is not there.
TEST_F(RendezvousTest, AStopRequestEndsTheWait) {
  auto server = std::make_unique<RendezvousServer>(kAnyPort, token_, 2, quiet());
  for (const bool has_server : {true, false}) {
    const HostPort address = server->address();
    if (!has_server) server.reset();
    std::stop_source stop;
    auto waits = std::async(std::launch::async, [&] {
      return exchange(address, token_, "bootstrap", 0, 2, "blob", kNoDeadline, stop.get_token());
    });
    EXPECT_EQ(waits.wait_for(100ms), std::future_status::timeout);  // it is in the wait by then
    stop.request_stop();
    EXPECT_EQ(error_of(std::move(waits)).code(), ErrorCode::kAborted);
  }
}

TEST_F(RendezvousTest, ADuplicateOrWrongSizeIsRefusedAndHarmless) {
  const RendezvousServer server(kAnyPort, token_, 2, quiet());
  // Both claim rank 0; the second gets an error, the first continues.
  auto first = come(server, 0, 2);
  auto second = come(server, 0, 2);
  const bool first_is_loser = [&] {
    while (true) {
      if (first.wait_for(1ms) == std::future_status::ready) return true;
      if (second.wait_for(1ms) == std::future_status::ready) return false;
    }
  }();
  const Error duplicate = error_of(std::move(first_is_loser ? first : second));
  EXPECT_EQ(duplicate.code(), ErrorCode::kMismatch);
  EXPECT_THAT(duplicate.what(), HasSubstr("rank 0 has already joined"));
  const Error stray = error_of(come(server, 1, 3));
  EXPECT_EQ(stray.code(), ErrorCode::kMismatch);
  EXPECT_THAT(stray.what(), HasSubstr("2 ranks"));
  EXPECT_EQ(error_of(come(server, 2, 2)).code(), ErrorCode::kMismatch);
  EXPECT_EQ(come(server, 1, 2).get().size(), 2u);
  EXPECT_EQ((first_is_loser ? second : first).get().size(), 2u);
}

TEST_F(RendezvousTest, FewerRanksMeetWhereTheyMay) {
  RendezvousOptions options = quiet();
  options.least_ranks = 2;
  const RendezvousServer server(kAnyPort, token_, 4, options);
  for (const int size : {4, 2, 3}) {
    const std::string key = "generation of " + std::to_string(size);
    std::vector<std::future<std::vector<std::string>>> ranks;
    for (int rank = 0; rank < size; ++rank) ranks.push_back(come(server, rank, size, key));
    for (auto& rank : ranks) EXPECT_EQ(rank.get().size(), static_cast<std::size_t>(size));
  }
  for (const int size : {1, 5}) {
    EXPECT_EQ(error_of(come(server, 0, size)).code(), ErrorCode::kMismatch) << size;
  }
  EXPECT_EQ(error_of(come(server, 2, 2)).code(), ErrorCode::kMismatch);
  // Of one exchange all say the same number: one of these two is refused, the other one continues.
  auto two = come(server, 0, 2, "mixed");
  auto three = come(server, 1, 3, "mixed");
  while (two.wait_for(1ms) != std::future_status::ready &&
         three.wait_for(1ms) != std::future_status::ready) {
  }
  const bool two_is_refused = two.wait_for(0ms) == std::future_status::ready;
  const Error mixed = error_of(std::move(two_is_refused ? two : three));
  EXPECT_EQ(mixed.code(), ErrorCode::kMismatch);
  EXPECT_THAT(mixed.what(), HasSubstr("start all of them with the same number"));
  if (two_is_refused) {
    auto zero = come(server, 0, 3, "mixed");
    auto last = come(server, 2, 3, "mixed");
    EXPECT_EQ(three.get().size(), 3u);
    zero.get();
    last.get();
  } else {
    auto one = come(server, 1, 2, "mixed");
    EXPECT_EQ(two.get().size(), 2u);
    one.get();
  }
}

TEST_F(RendezvousTest, StrangersAreDroppedAndDisturbNobody) {
  RendezvousOptions options;
  std::promise<std::string> noticed;
  options.notice = [&, told = false](const std::string& text) mutable {
    if (!std::exchange(told, true)) noticed.set_value(text);
  };
  options.handshake_timeout = 1s;
  const RendezvousServer server(kAnyPort, token_, 2, options);
  auto waiting = come(server, 0, 2);

  const UniqueFd silent = connect_tcp(server.address(), deadline_in(5s));
  const UniqueFd garbage = connect_tcp(server.address(), deadline_in(5s));
  const std::string noise(4096, '\xff');
  send_all(garbage.get(), std::as_bytes(std::span(noise)), deadline_in(5s));
  const UniqueFd slow = connect_tcp(server.address(), deadline_in(5s));
  send_all(slow.get(), std::as_bytes(std::span("x", 1)), deadline_in(5s));
  const Error wrong = error_of(std::async(std::launch::async, [&] {
    return exchange(server.address(), mint_token(), "bootstrap", 1, 2, "evil", deadline_in(5s));
  }));
  EXPECT_EQ(wrong.code(), ErrorCode::kUnauthorized);
  EXPECT_TRUE(is_closed(garbage.get()));
  EXPECT_TRUE(is_closed(silent.get()));
  EXPECT_TRUE(is_closed(slow.get()));
  EXPECT_THAT(noticed.get_future().get(), HasSubstr("dropped"));
  EXPECT_GE(server.dropped_connections(), 4u);

  EXPECT_THAT(come(server, 1, 2).get(), ElementsAre("blob of 0", "blob of 1"));
  EXPECT_THAT(waiting.get(), ElementsAre("blob of 0", "blob of 1"));
}

TEST_F(RendezvousTest, ManyStrangersLeaveRoomForTheJob) {
  RendezvousOptions options = quiet();
  options.most_strangers = 4;
  const RendezvousServer server(kAnyPort, token_, 1, options);
  std::vector<UniqueFd> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(connect_tcp(server.address(), deadline_in(5s)));
  }
  EXPECT_EQ(come(server, 0, 1).get().size(), 1u);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_TRUE(is_closed(strangers[i].get()));
}

TEST_F(RendezvousTest, AClientLostInAFloodOfStrangersTriesAgain) {
  RendezvousOptions options = quiet();
  options.most_strangers = 1;
  const RendezvousServer server(kAnyPort, token_, 1, options);
  std::jthread flood([&](std::stop_token stop) {
    std::vector<UniqueFd> strangers(64);
    for (std::size_t i = 0; !stop.stop_requested(); ++i) {
      strangers[i % strangers.size()] = connect_tcp(server.address(), deadline_in(20s));
    }
  });
  for (int round = 0; round < 10; ++round) EXPECT_EQ(come(server, 0, 1).get().size(), 1u);
}

TEST_F(RendezvousTest, NonsenseAfterAProofEndsOnlyItsOwnConnection) {
  const RendezvousServer server(kAnyPort, token_, 1, quiet());
  for (const std::string& nonsense :
       {std::string("\xff\xff\xff\xff", 4), std::string("\0\0\0\0", 4),
        std::string("\1\0\0\0\x63", 5), std::string("\2\0\0\0\1\1", 6)}) {
    auto client = rendezvous::connect_to_server(server.address(), token_, deadline_in(5s));
    client.stream.send(std::as_bytes(std::span(nonsense)), deadline_in(5s));
    EXPECT_TRUE(is_closed(client.stream.fd()));
  }
  EXPECT_EQ(come(server, 0, 1).get().size(), 1u);
}

TEST_F(RendezvousTest, APortInUseIsNamed) {
  const RendezvousServer server(kAnyPort, token_, 1, quiet());
  try {
    const RendezvousServer second(server.address(), token_, 1, quiet());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(server.address().port)));
  }
}

TEST_F(RendezvousTest, AServerThatComesLateIsWaitedFor) {
  HostPort address;
  {
    const RendezvousServer early(kAnyPort, token_, 1, quiet());
    address = early.address();
  }
  auto rank = std::async(std::launch::async, [&] {
    return exchange(address, token_, "bootstrap", 0, 1, "here", deadline_in(20s));
  });
  const RendezvousServer server(address, token_, 1, quiet());
  EXPECT_THAT(rank.get(), ElementsAre("here"));
}

TEST_F(RendezvousTest, WhatWasPromisedIsDeliveredBeforeTheServerGoes) {
  for (int round = 0; round < 20; ++round) {
    std::future<std::vector<std::string>> other;
    {
      const RendezvousServer server(kAnyPort, token_, 2, quiet());
      other = come(server, 1, 2);
      EXPECT_EQ(come(server, 0, 2).get().size(), 2u);
    }
    EXPECT_EQ(other.get().size(), 2u);
  }
}

NodeLink::News next_news(NodeLink& link, std::vector<NodeLink::News>& pending) {
  const Deadline deadline = deadline_in(20s);
  while (pending.empty()) {
    if (!wait_for_fd(link.fd(), POLLIN, deadline)) throw std::runtime_error("no news");
    pending = link.news();
  }
  NodeLink::News first = pending.front();
  pending.erase(pending.begin());
  return first;
}

TEST_F(RendezvousTest, NodesHearEachOtherAndWhoLeaves) {
  RendezvousOptions options = quiet();
  options.nodes = 2;
  auto server = std::make_unique<RendezvousServer>(kAnyPort, token_, 4, options);
  auto joining = std::async(std::launch::async, [&, address = server->address()] {
    return std::make_unique<NodeLink>(address, token_, 1, 2, "one", deadline_in(20s));
  });
  NodeLink zero(server->address(), token_, 0, 2, "zero", deadline_in(20s));
  auto one = joining.get();
  EXPECT_THAT(zero.blobs(), ElementsAre("zero", "one"));
  one->tell("hello", deadline_in(5s));
  std::vector<NodeLink::News> zero_pending;
  std::vector<NodeLink::News> one_pending;
  EXPECT_EQ(next_news(*one, one_pending).text, "hello");
  const auto heard = next_news(zero, zero_pending);
  EXPECT_EQ(heard.node, 1);
  EXPECT_EQ(heard.text, "hello");
  one.reset();
  const auto left = next_news(zero, zero_pending);
  EXPECT_EQ(left.node, 1);
  EXPECT_TRUE(left.left);
  server.reset();
  const auto gone = next_news(zero, zero_pending);
  EXPECT_EQ(gone.node, 0);
  EXPECT_TRUE(gone.left);
}

TEST_F(RendezvousTest, ANodeThatHasLeftIsTakenBack) {
  RendezvousOptions options = quiet();
  options.nodes = 2;
  const RendezvousServer server(kAnyPort, token_, 4, options);
  const auto join_as_one = [&](const std::string& blob) {
    return std::async(std::launch::async, [&, blob] {
      return std::make_unique<NodeLink>(server.address(), token_, 1, 2, blob, deadline_in(20s));
    });
  };
  auto joining = join_as_one("one");
  NodeLink zero(server.address(), token_, 0, 2, "zero", deadline_in(20s));
  auto one = joining.get();
  // It waits until its former connection has ended.
  std::vector<NodeLink::News> pending;
  NodeLink again(rendezvous::connect_to_server(server.address(), token_, deadline_in(20s)));
  auto rejoining =
      std::async(std::launch::async, [&] { again.join(1, 2, "one again", deadline_in(20s)); });
  one->tell("bye", deadline_in(5s));
  EXPECT_EQ(next_news(zero, pending).text, "bye");
  one.reset();
  EXPECT_TRUE(next_news(zero, pending).left);
  const auto joined = next_news(zero, pending);
  EXPECT_TRUE(joined.joined);
  EXPECT_EQ(joined.node, 1);
  EXPECT_EQ(joined.text, "one again");
  rejoining.get();
  EXPECT_THAT(again.blobs(), ElementsAre("zero", "one again"));
  zero.tell("welcome", deadline_in(5s));
  std::vector<NodeLink::News> of_one;
  EXPECT_EQ(next_news(again, of_one).text, "welcome");
}

// The launchers of two of three nodes are enough. The third joins later.
TEST_F(RendezvousTest, NodesMayBeginWithoutOthers) {
  RendezvousOptions options = quiet();
  options.nodes = 3;
  options.least_nodes = 2;
  options.wait_for_nodes = 50ms;
  const RendezvousServer server(kAnyPort, token_, 6, options);
  auto joining = std::async(std::launch::async, [&] {
    return std::make_unique<NodeLink>(server.address(), token_, 2, 3, "two", deadline_in(20s));
  });
  NodeLink zero(server.address(), token_, 0, 3, "zero", deadline_in(20s));
  const auto two = joining.get();
  EXPECT_THAT(zero.blobs(), ElementsAre("zero", "", "two"));
  EXPECT_THAT(two->blobs(), ElementsAre("zero", "", "two"));
  two->tell("I am the third", deadline_in(5s));
  std::vector<NodeLink::News> pending;
  EXPECT_EQ(next_news(zero, pending).node, 2);
  const NodeLink one(server.address(), token_, 1, 3, "one", deadline_in(20s));
  EXPECT_THAT(one.blobs(), ElementsAre("zero", "one", "two"));
  const auto joined = next_news(zero, pending);
  EXPECT_TRUE(joined.joined);
  EXPECT_EQ(joined.node, 1);
}

// One of three leaves while they wait for a fourth; the two that are left are enough.
TEST_F(RendezvousTest, NodesThatMayBeginWithoutOthersOutliveOneThatLeaves) {
  RendezvousOptions options = quiet();
  options.nodes = 4;
  options.least_nodes = 2;
  options.wait_for_nodes = 500ms;
  const RendezvousServer server(kAnyPort, token_, 8, options);
  auto joining = std::async(std::launch::async, [&] {
    return std::make_unique<NodeLink>(server.address(), token_, 2, 4, "two", deadline_in(20s));
  });
  // Until node 2 is there when node 3 gives up.
  std::vector<int> missing;
  while (missing != std::vector{0, 1}) {
    try {
      const NodeLink three(server.address(), token_, 3, 4, "three", deadline_in(200ms));
      ADD_FAILURE() << "it has joined";
      break;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kTimeout) missing = error.ranks();
    }
  }
  const NodeLink zero(server.address(), token_, 0, 4, "zero", deadline_in(20s));
  EXPECT_THAT(zero.blobs(), ElementsAre("zero", "", "two", ""));
  EXPECT_THAT(joining.get()->blobs(), ElementsAre("zero", "", "two", ""));
}

TEST_F(RendezvousTest, ANodeThatDoesNotLeaveIsNotReplaced) {
  RendezvousOptions options = quiet();
  options.nodes = 1;
  const RendezvousServer server(kAnyPort, token_, 2, options);
  const NodeLink zero(server.address(), token_, 0, 1, "zero", deadline_in(20s));
  try {
    const NodeLink other(server.address(), token_, 0, 1, "zero", deadline_in(100ms));
    ADD_FAILURE() << "it has joined";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.ranks(), ElementsAre(0));
  }
  EXPECT_THROW(NodeLink(server.address(), token_, 3, 1, "x", deadline_in(20s)), Error);
}

}  // namespace
}  // namespace lockstep
