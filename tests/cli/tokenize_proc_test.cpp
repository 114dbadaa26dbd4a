// lockstep tokenize as people call it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file/content_hash.h"
#include "lockstep/data/token_file/token_file.h"
#include "tests/cli/shell.h"
#include "tests/data/temporary_folder.h"
#include "tests/paths.h"

namespace lockstep::tokenize_proc_test {
namespace {

using fixtures::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run_lockstep;
using testing::shell;

constexpr int kUsageError = 2;

class TokenizeCommand : public ::testing::Test {
 protected:
  // Runs in the folder.
  testing::Outcome tokenize(const std::string& arguments) const {
    return shell("cd " + folder_.path().string() + " && " + in_build("lockstep") + " tokenize " +
                 arguments + " 2>&1");
  }

  TemporaryFolder folder_;
};

TEST_F(TokenizeCommand, WritesTokensWithTheirTokenizerAndSaysHowMany) {
  folder_.put("in/a.txt", "to be or not\nto be\n");
  folder_.put("in/b.txt", "that is the question\n");
  const auto outcome = tokenize("in -o out.tokens --tokenizer character --threads 2");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("1.000 bytes per token"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("\x1b")));  // no progress where there is no terminal
  const data::TokenFile file(folder_ / "out.tokens");
  EXPECT_EQ(file.size(), 40u);
  EXPECT_EQ(file.documents(), 2u);
  EXPECT_EQ(file.tokenizer_hash(),
            content_hash(TemporaryFolder::bytes_of(folder_ / "tokenizer.json")));
}

TEST_F(TokenizeCommand, MakesTheFolderOfItsTokens) {
  folder_.put("a.txt", "abc");
  ASSERT_EQ(tokenize("a.txt -o data/small/a.tokens").exit_code, 0);
  EXPECT_EQ(data::TokenFile(folder_ / "data/small/a.tokens").size(), 3u);
}

TEST_F(TokenizeCommand, ReadsStandardInputAndHoldsBackValidation) {
  folder_.put("a.jsonl", "{\"text\": \"aaaa\"}\n{\"text\": \"bbbb\"}\n");
  const auto outcome =
      tokenize("- --jsonl text --validation 0.5 --format llm.c -o out.bin < a.jsonl");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(folder_.names(),
              ElementsAre("a.jsonl", "out.bin", "out.validation.bin", "tokenizer.json"));
  EXPECT_EQ(data::TokenFile(folder_ / "out.bin").format(), data::TokenFormat::kLlmC);
  EXPECT_EQ(data::TokenFile(folder_ / "out.validation.bin").size(), 4u);
}

TEST_F(TokenizeCommand, KeepsATokenizerThatOtherTokensNeed) {
  folder_.put("a.txt", "abc");
  ASSERT_EQ(tokenize("a.txt -o a.tokens --tokenizer character").exit_code, 0);
  auto outcome = tokenize("a.txt -o b.tokens --tokenizer byte");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr("a different tokenizer"));
  EXPECT_EQ(tokenize("a.txt -o b.tokens --tokenizer character").exit_code, 0);
  EXPECT_EQ(tokenize("a.txt -o a.tokens --tokenizer byte").exit_code, 0);
}

TEST_F(TokenizeCommand, NeverWritesOverItsText) {
  const std::string text = "to be or not to be";
  folder_.put("in/a.txt", text);
  folder_.put("in/a.validation.txt", text);
  folder_.put("in/b.idx", text);
  folder_.put("in/tokenizer.json", text);
  const auto before = folder_.names();
  for (const char* arguments :
       {"in/a.txt -o in/a.txt", "in/a.txt -o ./in/../in/a.txt", "in -o in/a.txt",
        "in/a.validation.txt -o in/a.txt --validation 0.5", "in/b.idx -o in/b --format megatron",
        "in/tokenizer.json -o in/c.tokens"}) {
    const auto outcome = tokenize(arguments);
    EXPECT_EQ(outcome.exit_code, kUsageError) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr("would be written over it; give --output another name"))
        << arguments;
  }
  for (const char* name : {"in/a.txt", "in/a.validation.txt", "in/b.idx", "in/tokenizer.json"}) {
    EXPECT_EQ(TemporaryFolder::bytes_of(folder_ / name), text);
  }
  EXPECT_EQ(folder_.names(), before);
  // What is not written is an input like others.
  EXPECT_EQ(tokenize("in/a.validation.txt -o out/a.txt").exit_code, 0);
}

TEST_F(TokenizeCommand, ReadsTheSameTextAgainWhereItsTokensLieInTheFolder) {
  folder_.put("in/a.txt", "to be or not");
  folder_.put("in/b.txt", "to be");
  struct Call {
    std::string arguments;
    std::string tokens;  // the file
    std::uint64_t count;
    bool is_later = true;  // there are tokens in the folder
  };
  for (const Call& call : {Call{"in -o in/x.tokens", "in/x.tokens", 17, false},
                           Call{"in -o in/y.tokens", "in/y.tokens", 17},
                           Call{"in in/a.txt -o in/y.tokens", "in/y.tokens", 29},
                           Call{"in -o in/v.tokens --validation 0.5", "in/v.validation.tokens", 8},
                           Call{"in -o in/v.tokens", "in/v.tokens", 17},
                           Call{"in -o in/z.bin --format nanogpt", "in/z.bin", 17}}) {
    for (int again = 0; again < 2; ++again) {
      const auto outcome = tokenize(call.arguments);
      ASSERT_EQ(outcome.exit_code, 0) << call.arguments << '\n' << outcome.text;
      EXPECT_EQ(data::TokenFile(folder_ / call.tokens).size(), call.count) << call.arguments;
      EXPECT_EQ(outcome.text.find("skipped") != std::string::npos, again == 1 || call.is_later);
    }
  }
  ASSERT_EQ(tokenize("in/a.txt -o out/m --format megatron").exit_code, 0);
  const auto outcome = tokenize("out -o out/m --format megatron");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr("out has no text, only tokens"));
}

TEST_F(TokenizeCommand, WritesPairsOfMegatronThatInspectKnowsByAnyOfTheirNames) {
  folder_.put("a.txt", "to be or not");
  ASSERT_EQ(tokenize("a.txt -o out/m --format megatron").exit_code, 0);
  const std::string prefix = (folder_ / "out/m").string();
  for (const char* ending : {"", ".bin", ".idx"}) {
    const auto outcome = run_lockstep("inspect " + prefix + ending);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("megatron, 2 bytes per token"));
  }
  const auto outcome = run_lockstep("inspect " + prefix + "m");
  EXPECT_EQ(outcome.exit_code, kUsageError);
  EXPECT_THAT(outcome.text, HasSubstr(prefix + "m does not exist"));
}

TEST_F(TokenizeCommand, SaysWhereMemoryEnds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer takes more addresses than a limit leaves";
#endif
  const auto outcome = shell("cd " + folder_.path().string() +
                             " && ulimit -v 1000000 && head -c 2000000000 /dev/zero | " +
                             in_build("lockstep") + " tokenize - -o out.tokens 2>&1");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("not enough memory for this; choose smaller sizes"));
}

TEST_F(TokenizeCommand, RefusesWhatItCannotDo) {
  folder_.put("a.txt", "abc");
  folder_.put("empty.txt", "");
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const auto outcome = tokenize(arguments);
    EXPECT_NE(outcome.exit_code, 0) << arguments;
    EXPECT_THAT(outcome.text, HasSubstr(why)) << arguments;
  };
  refused("none.txt -o o.tokens", "none.txt");
  refused("empty.txt -o o.tokens", "all files are empty");
  refused("a.txt -o a.txt/in/o.tokens", "cannot make the folder of a.txt/in/o.tokens");
  refused("a.txt -o o.tokens --format nanogtp", "did you mean nanogpt?");
  refused("a.txt -o o.tokens --tokenizer bytes", "(did you mean byte?); give byte, character, bpe");
  refused("a.txt -o o.tokens --vocabulary 300", "--tokenizer bpe");
  refused("a.txt -o o.tokens --jsonl text", "a.txt:1: no JSON");
  refused("a.txt -o o.tokens --jsonl text --blank-lines", "leave out --blank-lines");
  refused("a.txt", "--output");
  EXPECT_THAT(folder_.names(), ElementsAre("a.txt", "empty.txt"));
}

}  // namespace
}  // namespace lockstep::tokenize_proc_test
