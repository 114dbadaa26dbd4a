#include "lockstep/live/line_tail.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::live {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineTails : public ::testing::Test {
 protected:
  void append(const std::string& text) { std::ofstream(path_, std::ios::app) << text; }

  // Everything that is new; "again" where the tail begins again.
  std::vector<std::string> poll() {
    std::vector<std::string> got;
    const LineTail::Reader reader{.begins_again = [&] { got.emplace_back("again"); },
                                  .line =
                                      [&](std::string_view line, std::uint64_t offset) {
                                        got.emplace_back(line);
                                        offsets_.push_back(offset);
                                      }};
    while (tail_.poll(most_, reader)) {
    }
    return got;
  }

  ScratchFolder folder_;
  std::filesystem::path path_ = folder_.path() / "file";
  LineTail tail_{path_};
  std::size_t most_ = 1 << 20;
  std::vector<std::uint64_t> offsets_;
};

TEST_F(LineTails, VisitWholeLinesOnce) {
  EXPECT_THAT(poll(), IsEmpty()) << "there is no file";
  append("one\ntwo\nthr");
  EXPECT_THAT(poll(), ElementsAre("one", "two"));
  EXPECT_THAT(poll(), IsEmpty());
  append("ee\n\n");
  EXPECT_THAT(poll(), ElementsAre("three", ""));
  EXPECT_THAT(offsets_, ElementsAre(0, 4, 8, 14));
}

TEST_F(LineTails, BeginAgainWhereTheFileIsAnotherOne) {
  append("one\ntwo\n");
  EXPECT_THAT(poll(), ElementsAre("one", "two"));
  write_file(path_, "one\nand another\n");  // renamed over it
  EXPECT_THAT(poll(), ElementsAre("again", "one", "and another"));
  std::filesystem::resize_file(path_, 4);
  EXPECT_THAT(poll(), ElementsAre("again", "one"));
  std::filesystem::remove(path_);
  EXPECT_THAT(poll(), ElementsAre("again"));
  EXPECT_THAT(poll(), IsEmpty());
  append("new\n");
  EXPECT_THAT(poll(), ElementsAre("new"));
}

TEST_F(LineTails, PassOverALineWithoutEnd) {
  append("short\n" + std::string(3 * LineTail::kMostLine, 'x') + "\nafter\n");
  EXPECT_THAT(poll(), ElementsAre("short", "after"));
}

TEST_F(LineTails, WaitForNoPipeAndNoFolder) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(poll(), IsEmpty());
  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  EXPECT_THAT(poll(), IsEmpty());
}

// The oracle is the list of lines that were written.
TEST_F(LineTails, ReadWhatWasWrittenHoweverItIsCut) {
  std::mt19937 random(7);
  std::vector<std::string> written;
  std::vector<std::string> got;
  std::string pending;
  for (int round = 0; round < 300; ++round) {
    std::string line(random() % 2 == 0 ? random() % 20 : random() % 300'000, 'a');
    for (char& c : line) c = static_cast<char>('a' + random() % 26);
    if (round % 10 != 0) line.resize(line.size() % 2000);
    written.push_back(line);
    pending += line + '\n';
    const std::size_t part = random() % (pending.size() + 1);
    append(pending.substr(0, part));
    pending.erase(0, part);
    most_ = 1 + random() % 400'000;
    for (const std::string& one : poll()) got.push_back(one);
  }
  append(pending);
  for (const std::string& one : poll()) got.push_back(one);
  EXPECT_EQ(got, written);
  std::ifstream file(path_);
  for (std::size_t i = 0; i < got.size(); i += 37) {
    std::vector<std::string> from;
    EXPECT_TRUE(read_lines(path_, tail_.inode(), offsets_[i], [&](std::string_view line) {
      from.emplace_back(line);
      return from.size() < 3;
    }));
    for (std::size_t k = 0; k < from.size(); ++k) EXPECT_EQ(from[k], got[i + k]);
  }
  EXPECT_FALSE(read_lines(path_, tail_.inode() + 1, 0, [](std::string_view) { return true; }));
}

}  // namespace
}  // namespace lockstep::live
