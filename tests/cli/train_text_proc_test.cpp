// What `lockstep train` takes for text, and what it shows of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/cli/train_command.h"

namespace lockstep {
namespace {

using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class TrainText : public testing::TrainCommand {
 protected:
  void put(const std::string& name, const std::string& bytes) const {
    std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  testing::Outcome train(const std::string& dir, const std::string& text,
                         const std::string& more = "") const {
    return testing::run_lockstep("train " + settings(dir, "data.text=" + (folder / text).string() +
                                                              " train.steps=1 " + more));
  }
  std::string tokens(const std::string& dir) const {
    return text_of(folder / dir / "data" / "training.tokens");
  }
};

TEST_F(TrainText, TakesJsonLinesAlsoPacked) {
  std::string lines;
  std::string text;
  for (int i = 0; i < 200; ++i) {
    lines += R"({"id": 1, "body": "it was the best of times"})"s + "\n";
    text += "it was the best of times";
  }
  put("a.jsonl", lines);
  put("a.txt", text);
  ASSERT_EQ(testing::shell("gzip -k " + (folder / "a.jsonl").string()).exit_code, 0);
  for (const std::string tokenizer : {"byte", "character", "bpe"}) {
    const std::string choice = "data.field=body data.tokenizer=" + tokenizer;
    const auto lines_run = train("l-" + tokenizer, "a.jsonl", choice);
    ASSERT_EQ(lines_run.exit_code, 0) << lines_run.text;
    const auto packed_run = train("p-" + tokenizer, "a.jsonl.gz", choice);
    ASSERT_EQ(packed_run.exit_code, 0) << packed_run.text;
    EXPECT_FALSE(tokens("l-" + tokenizer).empty());
    EXPECT_TRUE(tokens("l-" + tokenizer) == tokens("p-" + tokenizer)) << tokenizer;
  }
  // Another field is another text.
  EXPECT_THAT(train("l-byte", "a.jsonl", "data.field=none").text,
              HasSubstr(R"(a.jsonl:1: an object without "none")"));
  EXPECT_THAT(train("t", "a.txt", "data.field=body").text, HasSubstr("no JSON"));
}

// Changes a byte in the middle of a file.
void damage(const std::filesystem::path& path) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
  file.seekg(middle);
  const int byte = file.get();
  file.seekp(middle);
  file.put(static_cast<char>(byte ^ 1));
}

TEST_F(TrainText, NamesTheDamagedBlockOfATokenFileAndMakesItsOwnAgain) {
  put("a.txt", std::string(5000, 'a'));
  const std::string file = (folder / "a.tokens").string();
  ASSERT_EQ(
      testing::run_lockstep("tokenize " + (folder / "a.txt").string() + " -o " + file).exit_code,
      0);
  damage(file);
  const auto refused = testing::run_lockstep(
      "train " + settings("tokens", "data.text= data.tokens=" + file + " train.steps=1"));
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.text, AllOf(HasSubstr("a.tokens is damaged: block 0 of 1, bytes 64 to"),
                                  HasSubstr("Copy the file again")));

  ASSERT_EQ(train("run", "a.txt").exit_code, 0);
  const std::string before = tokens("run");
  damage(folder / "run" / "data" / "training.tokens");
  EXPECT_NE(tokens("run"), before);
  const auto again = train("run", "a.txt", "train.steps=2");
  EXPECT_EQ(again.exit_code, 0) << again.text;
  EXPECT_TRUE(tokens("run") == before);
}

TEST_F(TrainText, RefusesUtf16AndWarnsOfControlCharacters) {
  std::string wide = "\xff\xfe"s;
  std::string odd;
  for (int i = 0; i < 500; ++i) {
    wide += "a\0b\0"s;
    odd += "some \x1b[31m text\n";
  }
  put("wide.txt", wide);
  put("odd.txt", odd);
  const auto refused = train("wide", "wide.txt");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.text, HasSubstr("wide.txt is UTF-16"));
  const auto warned = train("odd", "odd.txt");
  EXPECT_EQ(warned.exit_code, 0) << warned.text;
  EXPECT_THAT(warned.text, AllOf(HasSubstr("warning: the text has 500 control characters"),
                                 HasSubstr("byte 5 of")));
}

// What a model writes is for programs as it is, and for a terminal without what moves its cursor.
TEST_F(TrainText, TextsOnATerminalArePrintable) {
  ASSERT_EQ(train("run", "text.txt").exit_code, 0);
  put("prompt.txt", "\x1b[31mred\a");
  const std::string command = in_build("lockstep") + " generate " + (folder / "run").string() +
                              " --prompt-file " + (folder / "prompt.txt").string() +
                              " --tokens 0 2>/dev/null";
  EXPECT_THAT(testing::shell(command).text, HasSubstr("\x1b[31mred\a"));
  const std::string shown = testing::shell("script -qec '" + command + "' /dev/null").text;
  EXPECT_THAT(shown, HasSubstr("\ufffd[31mred\ufffd"));
  EXPECT_THAT(shown, Not(HasSubstr("\x1b")));
}

}  // namespace
}  // namespace lockstep
