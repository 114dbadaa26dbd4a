#include "lockstep/base/file/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file/append_file.h"
#include "lockstep/base/file/mapped_file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class WriteFile : public ::testing::Test {
 protected:
  static std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  static std::string why_not(const fs::path& path) {
    try {
      write_file(path, "text");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  ScratchFolder scratch_;
  const fs::path& folder_ = scratch_.path();
};

TEST_F(WriteFile, PutsTheNewInPlaceOfTheOldAndLeavesNothingElse) {
  write_file(folder_ / "a", std::string(100'000, 'x'));
  write_file(folder_ / "a", std::string_view("one\0two", 7));
  EXPECT_EQ(read(folder_ / "a"), std::string_view("one\0two", 7));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WriteFile, FollowsALinkAndKeepsIt) {
  write_file(folder_ / "a", "old");
  fs::create_symlink("a", folder_ / "link");
  write_file(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read(folder_ / "a"), "new");
  EXPECT_EQ(entries(), 2u);
}

TEST_F(WriteFile, WritesIntoADeviceAndReportsThatItIsFull) {
  fs::create_symlink("/dev/full", folder_ / "full");
  EXPECT_NE(why_not(folder_ / "full").find("No space left"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_EQ(why_not("/dev/null"), "");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(WriteFile, SaysWhatIsWrongAndTouchesNothing) {
  EXPECT_NE(why_not(folder_ / "none" / "a").find("No such file or directory"), std::string::npos);
  fs::create_directory(folder_ / "b");
  EXPECT_NE(why_not(folder_ / "b").find("Is a directory"), std::string::npos);
  EXPECT_EQ(entries(), 1u);
}

TEST_F(WriteFile, CanBeAskedBeforeWhetherItWould) {
  EXPECT_NO_THROW(check_can_write(folder_ / "new"));
  EXPECT_NO_THROW(check_can_write("new_in_this_folder"));
  EXPECT_NO_THROW(check_can_write("/dev/null"));
  EXPECT_THROW(check_can_write(folder_), Error);
  EXPECT_THROW(check_can_write(folder_ / "missing" / "new"), Error);
  std::ofstream(folder_ / "file").flush();
  EXPECT_NO_THROW(check_can_write(folder_ / "file"));
  EXPECT_THROW(check_can_write(folder_ / "file" / "new"), Error);
  EXPECT_EQ(entries(), 1u);
}

template <class Function>
std::string refusal_of(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

// Without the refusal the first would wait for a writer, and the second read on for ever.
TEST(ReadFile, RefusesPipesAndDevicesWithoutWaiting) {
  const ScratchFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal_of([&] { read_file(pipe); }).find("pipe is a pipe"), std::string::npos);
  EXPECT_NE(refusal_of([] { read_file("/dev/zero"); }).find("/dev/zero is a device"),
            std::string::npos);
  EXPECT_NE(refusal_of([&] { read_file(folder.path()); }).find("is a folder"), std::string::npos);
}

TEST(AppendFile, RefusesAPipeThatNobodyReads) {
  const ScratchFolder folder;
  const fs::path pipe = folder.path() / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(refusal_of([&] { const AppendFile file(pipe); }).find("cannot write"),
            std::string::npos);
}

constexpr std::size_t kManyPages = std::size_t{1} << 20;

TEST(MappedFile, OfAFileThatIsCutReadsZerosAndSaysSo) {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "a";
  write_file(path, std::string(kManyPages, 'x'));
  const MappedFile file(path);
  EXPECT_NO_THROW(file.check_whole());
  fs::resize_file(path, 10);
  EXPECT_EQ(file.text()[5], 'x');
  EXPECT_EQ(file.text()[kManyPages - 1], '\0');
  EXPECT_EQ(file.text()[kManyPages / 2], '\0');
  EXPECT_NE(refusal_of([&] { file.check_whole(); }).find("became shorter"), std::string::npos);
  // Another mapping, which may get the same place, knows nothing of it.
  write_file(path, "new");
  EXPECT_NO_THROW(MappedFile(path).check_whole());
}

TEST(MappedFile, ThatWatchesTheSizeNoticesEveryByte) {
  const ScratchFolder folder;
  const fs::path path = folder.path() / "a";
  write_file(path, "0123456789");
  const MappedFile file(path, MappedFile::Watch::kSize);
  EXPECT_NO_THROW(file.check_whole());
  fs::resize_file(path, 9);
  EXPECT_THROW(file.check_whole(), Error);
}

}  // namespace
}  // namespace lockstep
