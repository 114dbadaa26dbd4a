#include "lockstep/comm/rendezvous/token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class TokenTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::string& text, int mode) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), static_cast<mode_t>(mode));
    return path;
  }

  static EnvironmentLookup lookup(std::map<std::string, std::string> variables) {
    return [variables = std::move(variables)](const std::string& name) {
      const auto at = variables.find(name);
      return at == variables.end() ? std::nullopt : std::optional(at->second);
    };
  }

  static std::string refusal(const EnvironmentLookup& environment) {
    try {
      find_token(environment);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnauthorized);
      return error.what();
    }
    ADD_FAILURE() << "the token was not refused";
    return "";
  }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(TokenTest, TextFormIsReversible) {
  const Token token = mint_token();
  EXPECT_EQ(token_text(token).size(), 64u);
  EXPECT_EQ(parse_token(fmt::format(" {}\n", token_text(token)), "test"), token);
  EXPECT_NE(mint_token(), token);
}

TEST_F(TokenTest, TheVariableComesBeforeTheFiles) {
  const Token token = mint_token();
  const Token other = mint_token();
  const auto file = write("token", token_text(other), 0600);
  EXPECT_EQ(find_token(lookup(
                {{"LOCKSTEP_TOKEN", token_text(token)}, {"LOCKSTEP_TOKEN_FILE", file.string()}})),
            token);
  EXPECT_EQ(find_token(lookup({{"LOCKSTEP_TOKEN_FILE", file.string()}})), other);
}

TEST_F(TokenTest, ABadTokenIsNotQuoted) {
  const std::string message = refusal(lookup({{"LOCKSTEP_TOKEN", "hunter2"}}));
  EXPECT_THAT(message, HasSubstr("LOCKSTEP_TOKEN"));
  EXPECT_THAT(message, Not(HasSubstr("hunter2")));
}

TEST_F(TokenTest, AFileThatOthersCanReadIsRefused) {
  const auto file = write("token", token_text(mint_token()), 0640);
  EXPECT_THAT(refusal(lookup({{"LOCKSTEP_TOKEN_FILE", file.string()}})), HasSubstr("chmod 600"));
}

TEST_F(TokenTest, ANamedFileThatIsMissingIsAnError) {
  EXPECT_THAT(refusal(lookup({{"LOCKSTEP_TOKEN_FILE", (folder_ / "none").string()}})),
              HasSubstr("does not exist"));
  EXPECT_FALSE(fs::exists(folder_ / "none"));
}

TEST_F(TokenTest, TheUsersFileIsMadeOnceAndKeptPrivate) {
  const auto home = lookup({{"HOME", folder_.string()}});
  const Token token = find_token(home);
  EXPECT_EQ(find_token(home), token);
  const fs::path file = folder_ / ".config/lockstep/token";
  struct stat info {};
  ASSERT_EQ(::stat(file.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(fs::directory_iterator(file.parent_path()), {}), 1);
  EXPECT_NE(find_token(lookup(
                {{"HOME", folder_.string()}, {"XDG_CONFIG_HOME", (folder_ / "xdg").string()}})),
            token);
}

TEST_F(TokenTest, ProcessesThatMakeItAtOnceAgree) {
  const auto home = lookup({{"HOME", folder_.string()}});
  std::vector<Token> tokens(8);
  {
    std::vector<std::jthread> threads;
    for (Token& token : tokens) threads.emplace_back([&] { token = find_token(home); });
  }
  for (const Token& token : tokens) EXPECT_EQ(token, tokens[0]);
}

TEST_F(TokenTest, WithoutAHomeTheErrorSaysWhatToSet) {
  EXPECT_THAT(refusal(lookup({})), HasSubstr("LOCKSTEP_TOKEN_FILE"));
}

}  // namespace
}  // namespace lockstep
