// Who has an emulated line, and when; and what a full socket leaves over.
#include "lockstep/parallel/server/wire/connection_loop.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>
#include <thread>

#include "lockstep/base/net/socket.h"

namespace lockstep::parallel {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Nobody : public ConnectionLoop::Receiver {
 public:
  std::span<std::byte> place(int, const Header&) override { return {}; }
  void take(int, const Header&, std::span<std::byte>) override {}
  void lost(int) override {}
};

// An event loop on a slow NIC, and the other ends of its connections.
class LoopOnALine : public ::testing::Test {
 protected:
  int connect() {
    const Listener listener = listen_tcp({"127.0.0.1", 0});
    others_.emplace_back(connect_tcp(listener.address, deadline_in(seconds(20))));
    return loop_.add(SlicePipe(accept_connection(listener.fd.get(), deadline_in(seconds(20)))));
  }
  void post(int connection, std::size_t bytes, Priority priority) {
    OutMessage message = small_message({.kind = Kind::kPush}, std::string(bytes, 'x'));
    message.priority = priority;
    loop_.post(connection, std::move(message));
  }
  // When the end of a message of this many bytes arrives at the other NIC, by the times in its
  // chunks.
  std::int64_t first_byte_of_last_chunk(int connection, std::size_t bytes) {
    std::int64_t last = 0;
    for (std::size_t done = 0; done < bytes + sizeof(Header);) {
      ChunkHeader header;
      read(connection, std::as_writable_bytes(std::span(&header, 1)));
      std::vector<std::byte> rest(header.bytes);
      read(connection, rest);
      done += header.bytes;
      last = header.first_ns;
    }
    return last;
  }

  Nobody nobody_;
  ConnectionLoop loop_{nobody_, LinkEmulation{.bytes_per_second = 8e6}};
  std::vector<RecordStream> others_;

 private:
  void read(int connection, std::span<std::byte> into) {
    RecordStream& other = others_[static_cast<std::size_t>(connection)];
    while (!into.empty()) {
      const std::size_t got = other.read(into).value();
      into = into.subspan(got);
      if (got == 0) {
        ASSERT_TRUE(wait_for_fd(other.fd(), POLLIN, deadline_in(seconds(20))));
      }
    }
  }
};

TEST_F(LoopOnALine, SharesItAmongConnectionsWhateverTheImportanceOfTheirMessages) {
  constexpr std::size_t kBytes = 40000;  // ten chunks
  const int one = connect();
  const int other = connect();
  post(one, kBytes, 2);
  post(one, kBytes, 1);
  post(other, kBytes, 7);
  while (loop_.has_more_to_send()) loop_.step(deadline_in(milliseconds(1)));
  const std::int64_t first_message = first_byte_of_last_chunk(one, kBytes);
  const std::int64_t other_message = first_byte_of_last_chunk(other, kBytes);
  const std::int64_t second_message = first_byte_of_last_chunk(one, kBytes);
  EXPECT_LT(first_message, second_message);
  EXPECT_LT(other_message, second_message) << "it took turns with the first";
}

TEST_F(LoopOnALine, LetsWhatIsUrgentGoBeforeWhatIsLarge) {
  constexpr std::size_t kBytes = 40000;
  const int one = connect();
  const int other = connect();
  post(one, kBytes, 1);
  post(other, kBytes, 1);
  post(other, 10, kUrgent);
  while (loop_.has_more_to_send()) loop_.step(deadline_in(milliseconds(1)));
  const std::int64_t urgent = first_byte_of_last_chunk(other, 10);
  EXPECT_LT(urgent, first_byte_of_last_chunk(one, kBytes));
  EXPECT_LT(urgent, first_byte_of_last_chunk(other, kBytes));
}

// Keeps received messages, and records when the other end closes.
class Keeper : public ConnectionLoop::Receiver {
 public:
  std::span<std::byte> place(int, const Header& header) override {
    coming_.resize(header.bytes);
    return coming_;
  }
  void take(int, const Header&, std::span<std::byte> payload) override {
    messages.emplace_back(reinterpret_cast<const char*>(payload.data()), payload.size());
  }
  void lost(int) override { is_lost = true; }

  std::vector<std::string> messages;
  bool is_lost = false;

 private:
  std::vector<std::byte> coming_;
};

// Either way more than a ring holds, at once, with a NIC and without; and the end of it all.
TEST(LoopOverRings, CarriesWhatIsMoreThanARingAndEnds) {
  constexpr std::size_t kMessages = 3;
  const auto text = [](std::size_t i) { return std::string(3'000'001 + i, char('a' + i)); };
  const LinkEmulation fast{.bytes_per_second = 400e6};
  for (const std::optional<LinkEmulation>& link : {std::optional<LinkEmulation>(), {fast}}) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    SlicePipe one = SlicePipe::make_rings(UniqueFd(ends[0]), deadline_in(seconds(20)));
    SlicePipe other = SlicePipe::take_rings(UniqueFd(ends[1]), deadline_in(seconds(20)));
    const auto talk = [&](SlicePipe pipe, bool leaves_first) {
      Keeper keeper;
      ConnectionLoop loop(keeper, link);
      loop.add(std::move(pipe));
      for (std::size_t i = 0; i < kMessages; ++i) {
        loop.post(0, small_message({.kind = Kind::kPush}, text(i)));
      }
      const Deadline deadline = deadline_in(seconds(20));
      const auto done = [&] {
        return leaves_first ? keeper.messages.size() == kMessages && !loop.has_more_to_send()
                            : keeper.is_lost;
      };
      while (!done() && !has_passed(deadline)) loop.step(deadline_in(milliseconds(10)));
      loop.finish(deadline);
      EXPECT_FALSE(has_passed(deadline));
      ASSERT_EQ(keeper.messages.size(), kMessages);
      for (std::size_t i = 0; i < kMessages; ++i) EXPECT_EQ(keeper.messages[i], text(i));
    };
    std::jthread thread([&] { talk(std::move(other), false); });
    talk(std::move(one), true);
  }
}

// Before waiting for a socket the loop calls send() to learn whether it is full.
TEST(Connection, IsDoneOnlyWhenNothingIsLeftOrTheSocketIsFull) {
  constexpr std::size_t kBytes = std::size_t{8} << 20;  // more than sockets hold
  constexpr std::uint64_t kMessages = 3;
  const Listener listener = listen_tcp({"127.0.0.1", 0});
  const UniqueFd other = connect_tcp(listener.address, deadline_in(seconds(20)));
  const int received = 1 << 18;  // else some kernels let it grow to hold all of them
  ASSERT_EQ(::setsockopt(other.get(), SOL_SOCKET, SO_RCVBUF, &received, sizeof received), 0);
  Connection connection(SlicePipe(accept_connection(listener.fd.get(), deadline_in(seconds(20)))));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    connection.post(small_message({.kind = Kind::kPush}, std::string(kBytes, 'x')), i, {});
  }
  ASSERT_FALSE(connection.send());
  std::vector<std::byte> drained(kMessages * (kBytes + sizeof(Header)));
  std::jthread reader([&] { receive_all(other.get(), drained, deadline_in(seconds(20))); });
  while (connection.has_more()) {
    pollfd entry{connection.fd(), POLLOUT, 0};
    ASSERT_EQ(::poll(&entry, 1, 20'000), 1);
    const bool done = connection.send();
    EXPECT_EQ(done, !connection.has_more());
  }
}

}  // namespace
}  // namespace lockstep::parallel
