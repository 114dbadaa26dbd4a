#include "lockstep/base/file/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>

#include "lockstep/base/error.h"
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

}  // namespace
}  // namespace lockstep
