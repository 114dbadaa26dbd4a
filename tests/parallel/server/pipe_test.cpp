// Bytes through sockets and through rings: all of them, in order, to the very last.
#include "lockstep/parallel/server/wire/pipe.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"
#include "lockstep/base/net/unix_socket.h"
#include "tests/comm/native/proxy.h"

namespace lockstep::parallel {
namespace {

Deadline soon() { return deadline_in(std::chrono::seconds(20)); }

struct Ends {
  UniqueFd one;
  UniqueFd other;
};

Ends connected() {
  int fds[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

struct Pipes {
  SlicePipe one;
  SlicePipe other;
};

Pipes make_pipes(bool rings) {
  if (rings) {
    Ends ends = connected();
    SlicePipe one = SlicePipe::make_rings(std::move(ends.one), soon());
    return {std::move(one), SlicePipe::take_rings(std::move(ends.other), soon())};
  }
  const Listener listener = listen_tcp({"127.0.0.1", 0});
  SlicePipe one(connect_tcp(listener.address, soon()));
  return {std::move(one), SlicePipe(accept_connection(listener.fd.get(), soon()))};
}

std::byte byte_at(std::size_t i) { return static_cast<std::byte>((i * 2654435761U) >> 15); }

// As the event loop does it: asks, sleeps, looks.
void sleep_on(SlicePipe& pipe, bool to_read, bool to_write) {
  const short events = static_cast<short>((to_read || !pipe.polls_to_write() ? POLLIN : 0) |
                                          (to_write && pipe.polls_to_write() ? POLLOUT : 0));
  pollfd entry{pipe.fd(), events, 0};
  const bool sleeps = pipe.may_sleep(to_read, to_write);
  ASSERT_GE(::poll(&entry, 1, sleeps ? 20'000 : 0), sleeps ? 1 : 0) << "nobody woke it";
  pipe.wake_up((entry.revents & (POLLIN | POLLHUP)) != 0);
}

// Sends `total` bytes in parts of odd sizes.
void send_stream(SlicePipe& pipe, std::size_t total, std::size_t most) {
  std::vector<std::byte> data(most);
  for (std::size_t done = 0; done < total;) {
    const std::size_t bytes = std::min(data.size(), total - done);
    for (std::size_t i = 0; i < bytes; ++i) data[i] = byte_at(done + i);
    const iovec parts[] = {{data.data(), bytes / 3}, {data.data() + bytes / 3, bytes - bytes / 3}};
    const auto taken = pipe.write(parts);
    ASSERT_TRUE(taken);
    if (*taken == 0) sleep_on(pipe, false, true);
    done += *taken;
  }
}

// Until the end; counts what came.
void receive_stream(SlicePipe& pipe, std::size_t most, std::size_t& came) {
  std::vector<std::byte> data(most);
  while (true) {
    const auto got = pipe.read(data);
    if (!got) return;
    for (std::size_t i = 0; i < *got; ++i) ASSERT_EQ(data[i], byte_at(came + i)) << came + i;
    came += *got;
    if (*got == 0) sleep_on(pipe, true, false);
  }
}

class ServerPipe : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(By, ServerPipe, ::testing::Values(false, true),
                         [](const auto& test) { return test.param ? "Rings" : "Socket"; });

TEST_P(ServerPipe, CarriesEveryByteEitherWayAndThenTheEnd) {
  for (const std::size_t most : {std::size_t{1000}, std::size_t{70'001}, std::size_t{2'000'003}}) {
    for (const bool back : {false, true}) {
      Pipes pipes = make_pipes(GetParam());
      const std::size_t total = most == 1000 ? 300'001 : 9'000'001;
      std::size_t came = 0;
      std::jthread receiver([&] { receive_stream(back ? pipes.one : pipes.other, 65'537, came); });
      SlicePipe& sender = back ? pipes.other : pipes.one;
      send_stream(sender, total, most);
      sender.end_writing();
      receiver.join();
      EXPECT_EQ(came, total);
    }
  }
}

TEST_P(ServerPipe, TakesNoMoreThanFitsAndGoesOnWhenThereIsRoom) {
  Pipes pipes = make_pipes(GetParam());
  std::vector<std::byte> data(std::size_t{64} << 20);
  const iovec part{data.data(), data.size()};
  std::size_t sent = 0;
  while (const auto taken = pipes.one.write({&part, 1}).value()) sent += taken;
  ASSERT_GT(sent, 0u);
  std::size_t got = 0;
  while (const auto more = pipes.other.read(data).value()) got += more;
  EXPECT_EQ(got, sent);
  EXPECT_GT(pipes.one.write({&part, 1}).value(), 0u);
}

TEST_P(ServerPipe, OfOneWhoHasGoneGivesAllThatItWroteAndTakesNothing) {
  Pipes pipes = make_pipes(GetParam());
  send_stream(pipes.one, 12'345, 1000);
  pipes.one.close();
  std::size_t came = 0;
  receive_stream(pipes.other, 100, came);
  EXPECT_EQ(came, 12'345u);
  std::vector<std::byte> data(1000);
  const iovec part{data.data(), data.size()};
  bool refused = false;
  for (int i = 0; i < 100 && !refused; ++i) refused = !pipes.other.write({&part, 1});
  EXPECT_TRUE(refused);
}

TEST(ServerPipeRings, AreNotTakenFromOneWhoHandsOverNone) {
  Ends ends = connected();
  const std::byte announcement{1};
  send_all(ends.one.get(), {&announcement, 1}, soon());
  EXPECT_THROW(SlicePipe::take_rings(std::move(ends.other), soon()), Error);
}

// A flipped bit anywhere between a worker and a server is an error that names both.
TEST(SlicePipe, NoFlippedBitReachesASlice) {
  const std::vector<std::byte> slice(100'000, std::byte{7});
  for (std::uint64_t at = 0; at < slice.size(); at += 4999) {
    testing::Proxy proxy({testing::ProxyChange::kFlip, at, static_cast<int>(at % 8)});
    const Listener listener = listen_tcp({"127.0.0.1", 0});
    SlicePipe worker(connect_tcp(proxy.front(listener.address), soon()));
    SlicePipe server(accept_connection(listener.fd.get(), soon()), {}, "rank 1 and rank 0", {1, 0});
    std::jthread writer([&] {
      for (std::size_t done = 0; done < slice.size();) {
        const iovec rest{const_cast<std::byte*>(slice.data()) + done, slice.size() - done};
        const auto taken = worker.write({&rest, 1});
        if (!taken) return;  // the server has closed the connection
        if (*taken == 0) sleep_on(worker, false, true);
        done += *taken;
      }
    });
    std::vector<std::byte> came(slice.size());
    std::size_t filled = 0;
    try {
      while (filled < came.size()) {
        filled += server.read(std::span(came).subspan(filled)).value();
        if (filled < came.size()) sleep_on(server, true, false);
      }
      ADD_FAILURE() << "byte " << at << " was changed in silence";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupted) << error.what();
      EXPECT_EQ(error.ranks(), (std::vector<int>{1, 0}));
      EXPECT_NE(std::string(error.what()).find("rank 1 and rank 0"), std::string::npos);
    }
    server.close();
  }
}

}  // namespace
}  // namespace lockstep::parallel
