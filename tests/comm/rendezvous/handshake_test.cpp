#include "lockstep/comm/rendezvous/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "lockstep/base/error.h"
#include "lockstep/base/net/socket.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Pair {
  Pair() {
    const Listener listener = listen_tcp({"127.0.0.1", 0});
    client = connect_tcp(listener.address, deadline_in(5s));
    server = accept_connection(listener.fd.get(), deadline_in(5s));
  }
  UniqueFd server;
  UniqueFd client;
};

using Prove = void (*)(int, const Token&, std::string_view, Deadline);
constexpr Prove to_client = [](int fd, const Token& token, std::string_view context,
                               Deadline deadline) {
  prove_to_client(fd, token, context, deadline);
};
constexpr Prove to_server = [](int fd, const Token& token, std::string_view context,
                               Deadline deadline) {
  prove_to_server(fd, token, context, deadline);
};

// The error of one side of a handshake; nothing when it succeeded. Closes `fd` after an error.
std::optional<Error> outcome(Prove prove, UniqueFd& fd, const Token& token,
                             std::string_view context) {
  try {
    prove(fd.get(), token, context, deadline_in(5s));
  } catch (const Error& error) {
    fd.reset();
    return error;
  }
  return std::nullopt;
}

struct Outcomes {
  std::optional<Error> server;
  std::optional<Error> client;
};

Outcomes shake(const Token& server_token, std::string_view server_context,
               const Token& client_token, std::string_view client_context) {
  Pair pair;
  auto server = std::async(std::launch::async, [&] {
    return outcome(to_client, pair.server, server_token, server_context);
  });
  Outcomes outcomes;
  outcomes.client = outcome(to_server, pair.client, client_token, client_context);
  outcomes.server = server.get();
  return outcomes;
}

TEST(Handshake, EqualTokensAndContextsAgree) {
  const Token token = mint_token();
  const std::string longest(kLongestContext, 'x');
  const Outcomes outcomes = shake(token, longest, token, longest);
  EXPECT_FALSE(outcomes.server);
  EXPECT_FALSE(outcomes.client);
}

TEST(Handshake, AnotherTokenIsRefusedOnBothSides) {
  const Outcomes outcomes = shake(mint_token(), "job", mint_token(), "job");
  ASSERT_TRUE(outcomes.server);
  ASSERT_TRUE(outcomes.client);
  EXPECT_EQ(outcomes.server->code(), ErrorCode::kUnauthorized);
  EXPECT_EQ(outcomes.client->code(), ErrorCode::kUnauthorized);
  EXPECT_THAT(outcomes.server->what(), HasSubstr("could not prove"));
  EXPECT_THAT(outcomes.client->what(), HasSubstr("refused this process"));
}

TEST(Handshake, AnotherContextIsRefused) {
  const Token token = mint_token();
  const Outcomes outcomes = shake(token, "ring 0 to 1", token, "ring 1 to 0");
  ASSERT_TRUE(outcomes.server);
  EXPECT_EQ(outcomes.server->code(), ErrorCode::kUnauthorized);
}

TEST(Handshake, ASilentPeerIsATimeout) {
  Pair pair;
  try {
    prove_to_client(pair.server.get(), mint_token(), "job", deadline_in(20ms));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  }
}

TEST(Handshake, APeerThatLeavesIsLost) {
  Pair pair;
  pair.server.reset();
  const auto error = outcome(to_server, pair.client, mint_token(), "job");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kPeerLost);
}

TEST(Handshake, AnotherProtocolIsNamedAsSuch) {
  Pair pair;
  const std::string greeting(sizeof(Challenge), 'H');
  send_all(pair.server.get(), std::as_bytes(std::span(greeting)), deadline_in(5s));
  const auto error = outcome(to_server, pair.client, mint_token(), "job");
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUnauthorized);
  EXPECT_THAT(error->what(), HasSubstr("protocol"));
}

TEST(Handshake, AnAnswerSentBackProvesNothingToItsMaker) {
  const Token token = mint_token();
  Pair pair;
  auto client =
      std::async(std::launch::async, [&] { return outcome(to_server, pair.client, token, "job"); });
  // A server without the token that returns the client's own proof.
  const ServerHandshake impostor(mint_token(), "job");
  send_all(pair.server.get(), impostor.challenge(), deadline_in(5s));
  Answer answer;
  receive_all(pair.server.get(), answer, deadline_in(5s));
  send_all(pair.server.get(), std::span(answer).subspan<kNonceBytes + kWishBytes>(),
           deadline_in(5s));
  const auto error = client.get();
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code(), ErrorCode::kUnauthorized);
}

TEST(Handshake, AnAnswerOfAnotherConnectionProvesNothing) {
  const Token token = mint_token();
  Pair pair;
  auto client =
      std::async(std::launch::async, [&] { return outcome(to_server, pair.client, token, "job"); });
  const ServerHandshake first(token, "job");
  send_all(pair.server.get(), first.challenge(), deadline_in(5s));
  Answer answer;
  receive_all(pair.server.get(), answer, deadline_in(5s));
  const auto verdict = first.judge(answer);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(ServerHandshake(token, "job").judge(answer));
  answer[0] ^= std::byte{1};
  EXPECT_FALSE(first.judge(answer));
  send_all(pair.server.get(), *verdict, deadline_in(5s));
  EXPECT_FALSE(client.get());
}

}  // namespace
}  // namespace lockstep
