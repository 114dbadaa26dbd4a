#include "lockstep/base/net/socket.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/net/unix_socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Pair {
  UniqueFd server;
  UniqueFd client;
};

Pair connected_pair() {
  const Listener listener = listen_tcp({"127.0.0.1", 0});
  Pair pair;
  pair.client = connect_tcp(listener.address, deadline_in(5s));
  pair.server = accept_connection(listener.fd.get(), deadline_in(5s));
  return pair;
}

template <class Body>
Error error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::kSystem, "no error");
}

bool closes_on_exec(int fd) { return (::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

TEST(Socket, CarriesMoreThanAnyBufferHolds) {
  const Pair pair = connected_pair();
  std::vector<std::byte> data(32 << 20);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::byte>(i * 31);
  std::jthread sender([&] { send_all(pair.client.get(), data, deadline_in(30s)); });
  std::vector<std::byte> got(data.size());
  receive_all(pair.server.get(), got, deadline_in(30s));
  EXPECT_TRUE(got == data);
}

TEST(Socket, ClosesOnExec) {
  const Pair pair = connected_pair();
  EXPECT_TRUE(closes_on_exec(pair.client.get()));
  EXPECT_TRUE(closes_on_exec(pair.server.get()));
  EXPECT_TRUE(closes_on_exec(listen_tcp({"127.0.0.1", 0}).fd.get()));
}

TEST(Socket, ASilentPeerIsATimeout) {
  const Pair pair = connected_pair();
  std::byte byte{};
  EXPECT_EQ(error_of([&] {
              receive_all(pair.client.get(), std::span(&byte, 1), deadline_in(20ms));
            }).code(),
            ErrorCode::kTimeout);
  const std::vector<std::byte> flood(64 << 20);
  EXPECT_EQ(error_of([&] { send_all(pair.client.get(), flood, deadline_in(50ms)); }).code(),
            ErrorCode::kTimeout);
}

TEST(Socket, APeerThatLeavesIsLost) {
  Pair pair = connected_pair();
  pair.server.reset();
  std::byte byte{};
  EXPECT_EQ(error_of([&] {
              receive_all(pair.client.get(), std::span(&byte, 1), deadline_in(5s));
            }).code(),
            ErrorCode::kPeerLost);
  const std::vector<std::byte> flood(16 << 20);
  EXPECT_EQ(error_of([&] { send_all(pair.client.get(), flood, deadline_in(5s)); }).code(),
            ErrorCode::kPeerLost);
}

TEST(Socket, APortInUseIsNamed) {
  const Listener listener = listen_tcp({"127.0.0.1", 0});
  const Error error = error_of([&] { listen_tcp(listener.address); });
  EXPECT_EQ(error.code(), ErrorCode::kSystem);
  EXPECT_THAT(error.what(), HasSubstr(std::to_string(listener.address.port)));
  EXPECT_THAT(error.what(), HasSubstr("in use"));
}

TEST(Socket, ConnectWaitsForAServerThatComesLater) {
  HostPort address;
  { address = listen_tcp({"127.0.0.1", 0}).address; }
  EXPECT_EQ(error_of([&] { connect_tcp(address, deadline_in(5s)); }).code(), ErrorCode::kPeerLost);
  EXPECT_EQ(
      error_of([&] { connect_tcp(address, deadline_in(30ms), Retry::kUntilDeadline); }).code(),
      ErrorCode::kTimeout);
  UniqueFd client;
  std::jthread late(
      [&] { client = connect_tcp(address, deadline_in(10s), Retry::kUntilDeadline); });
  const Listener listener = listen_tcp(address);
  const UniqueFd server = accept_connection(listener.fd.get(), deadline_in(10s));
  late.join();
  EXPECT_TRUE(client);
}

TEST(Socket, AcceptHasADeadline) {
  const Listener listener = listen_tcp({"127.0.0.1", 0});
  EXPECT_EQ(error_of([&] { accept_connection(listener.fd.get(), deadline_in(10ms)); }).code(),
            ErrorCode::kTimeout);
  EXPECT_EQ(try_accept(listener.fd.get()).has_value(), false);
}

TEST(Socket, NamesItsEnds) {
  const Pair pair = connected_pair();
  set_nodelay(pair.client.get());
  set_peer_timeout(pair.client.get(), 10s);
  EXPECT_THAT(peer_name(pair.client.get()), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(local_host(pair.client.get()), "127.0.0.1");
}

TEST(UnixSocket, CarriesDescriptors) {
  const std::string name = "lockstep-test-" + std::to_string(::getpid());
  const UniqueFd listener = listen_unix_abstract(name);
  EXPECT_THROW(listen_unix_abstract(name), Error);
  const UniqueFd client = connect_unix_abstract(name, deadline_in(5s));
  const UniqueFd server = accept_connection(listener.get(), deadline_in(5s));
  Pipe pipe = make_pipe();
  const int sent_fds[] = {pipe.write_end.get()};
  send_with_fds(client.get(), std::as_bytes(std::span("hello", 5)), sent_fds, deadline_in(5s));
  pipe.write_end.reset();
  std::array<std::byte, 5> data;
  const auto fds = receive_with_fds(server.get(), data, 1, deadline_in(5s));
  ASSERT_EQ(fds.size(), 1u);
  EXPECT_TRUE(closes_on_exec(fds[0].get()));
  ASSERT_EQ(::write(fds[0].get(), "x", 1), 1);
  char byte = 0;
  ASSERT_EQ(::read(pipe.read_end.get(), &byte, 1), 1);
  EXPECT_EQ(byte, 'x');
}

TEST(UnixSocket, RefusesMoreDescriptorsThanExpected) {
  const std::string name = "lockstep-test-more-" + std::to_string(::getpid());
  const UniqueFd listener = listen_unix_abstract(name);
  const UniqueFd client = connect_unix_abstract(name, deadline_in(5s));
  const UniqueFd server = accept_connection(listener.get(), deadline_in(5s));
  const int sent_fds[] = {0, 1};
  send_with_fds(client.get(), std::as_bytes(std::span("x", 1)), sent_fds, deadline_in(5s));
  std::byte data{};
  EXPECT_EQ(error_of([&] {
              receive_with_fds(server.get(), std::span(&data, 1), 1, deadline_in(5s));
            }).code(),
            ErrorCode::kProtocol);
}

TEST(UnixSocket, ANameWithoutListenerIsAPeerLost) {
  EXPECT_EQ(error_of([] { connect_unix_abstract("lockstep-nobody", deadline_in(5s)); }).code(),
            ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace lockstep
