// Ranks that connect, among others that should not.
#include "lockstep/comm/native/acceptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/net/unix_socket.h"

namespace lockstep::acceptor_test {
namespace {

using namespace std::chrono_literals;

constexpr Hello kHello{.tag = 7, .from = 3, .purpose = Purpose::kPointToPoint};

// An acceptor behind a listener of either kind, and the way to it.
class Entry {
 public:
  Entry(const Token& token, bool local) : local_(local), acceptor_(token, 1) {
    if (local) {
      acceptor_.open(listen_unix_abstract(name_), true);
    } else {
      Listener listener = listen_tcp({"127.0.0.1", 0});
      address_ = listener.address;
      acceptor_.open(std::move(listener.fd), false);
    }
  }
  UniqueFd connect() const {
    return local_ ? connect_unix_abstract(name_, deadline_in(20s))
                  : connect_tcp(address_, deadline_in(20s));
  }
  Acceptor& acceptor() { return acceptor_; }

 private:
  bool local_;
  std::string name_ = random_unix_name();
  HostPort address_;
  Acceptor acceptor_;
};

TEST(Acceptor, LetsARankInBesideManySilentStrangers) {
  const Token token = mint_token();
  for (const bool local : {false, true}) {
    Entry entry(token, local);
    std::vector<UniqueFd> strangers;
    for (int i = 0; i < 600; ++i) strangers.push_back(entry.connect());
    const ProvenSocket mine = connect_as(
        kHello, [&] { return entry.connect(); }, token, deadline_in(20s));
    const Visitor visitor = entry.acceptor().await(kHello, deadline_in(20s));
    EXPECT_EQ(visitor.same_machine, local);
    // It is the same connection.
    std::byte word{42};
    send_all(mine.socket.get(), {&word, 1}, deadline_in(20s));
    word = std::byte{0};
    receive_all(visitor.socket.get(), {&word, 1}, deadline_in(20s));
    EXPECT_EQ(word, std::byte{42});
  }
}

TEST(Acceptor, LetsARankInWhileStrangersKeepComing) {
  const Token token = mint_token();
  Entry entry(token, false);
  std::jthread flood([&](std::stop_token stop) {
    std::vector<UniqueFd> strangers(400);
    for (std::size_t i = 0; !stop.stop_requested(); ++i) {
      strangers[i % strangers.size()] = entry.connect();
    }
  });
  for (int from = 0; from < 20; ++from) {
    const Hello hello{.tag = 7, .from = from, .purpose = Purpose::kControl};
    const ProvenSocket mine = connect_as(
        hello, [&] { return entry.connect(); }, token, deadline_in(60s));
    EXPECT_TRUE(entry.acceptor().await(hello, deadline_in(60s)).socket);
  }
}

// The other side leaves before the proof: as often as it does, another connection is made.
TEST(Acceptor, ARankThatIsTurnedAwayTriesAgain) {
  const Token token = mint_token();
  Entry entry(token, false);
  int attempts = 0;
  const ProvenSocket mine = connect_as(
      kHello,
      [&] {
        if (++attempts > 3) return entry.connect();
        int ends[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
        ::close(ends[1]);
        return UniqueFd(ends[0]);
      },
      token, deadline_in(20s));
  EXPECT_EQ(attempts, 4);
  EXPECT_TRUE(entry.acceptor().await(kHello, deadline_in(20s)).socket);
}

// The connection waits in the listener's queue while no descriptor is left to take it.
TEST(Acceptor, OutlivesALackOfDescriptors) {
  const Token token = mint_token();
  Listener listener = listen_tcp({"127.0.0.1", 0});
  UniqueFd early = connect_tcp(listener.address, deadline_in(20s));
  Acceptor acceptor(token, 1);
  std::vector<UniqueFd> all;
  for (int fd; (fd = ::fcntl(early.get(), F_DUPFD_CLOEXEC, 0)) >= 0;) all.emplace_back(fd);
  EXPECT_EQ(errno, EMFILE);
  acceptor.open(std::move(listener.fd), false);
  // It tries, fails and tries again: a connection in the queue keeps it busy.
  ::poll(nullptr, 0, 200);
  all.clear();
  bool first = true;
  const ProvenSocket mine = connect_as(
      kHello,
      [&] {
        EXPECT_TRUE(std::exchange(first, false)) << "it was dropped";
        return std::move(early);
      },
      token, deadline_in(20s));
  EXPECT_TRUE(acceptor.await(kHello, deadline_in(20s)).socket);
}

int user_timeout(int socket) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, &length), 0);
  return value;
}

int keepalive(int socket) {
  int value = -1;
  socklen_t length = sizeof value;
  EXPECT_EQ(::getsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &value, &length), 0);
  return value;
}

// The kernel counts a full window as a machine that does not answer where TCP_USER_TIMEOUT is set,
// so that a paused rank would end the job long before comm.timeout.
TEST(Acceptor, OnlyControlConnectionsEndWhenThePeerReadsNothing) {
  const Token token = mint_token();
  Entry entry(token, false);
  for (const Purpose purpose : {Purpose::kControl, Purpose::kCollective, Purpose::kPointToPoint}) {
    const Hello hello{.tag = 7, .from = 1, .purpose = purpose};
    const ProvenSocket mine = connect_as(
        hello, [&] { return entry.connect(); }, token, deadline_in(20s));
    const Visitor visitor = entry.acceptor().await(hello, deadline_in(20s));
    for (const int end : {mine.socket.get(), visitor.socket.get()}) {
      EXPECT_EQ(user_timeout(end) > 0, purpose == Purpose::kControl);
      EXPECT_EQ(keepalive(end), 1);
    }
  }
}

}  // namespace
}  // namespace lockstep::acceptor_test
