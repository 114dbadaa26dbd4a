#include "lockstep/io/hashed_file.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::io {
namespace {

class HashedFile : public ::testing::Test {
 protected:
  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

TEST_F(HashedFile, HasTheHashThatOthersHave) {
  EXPECT_EQ(hash_of("").hash, "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hash_of("").bytes, 0u);
}

// More than one block, and a rest: the blocks are hashed beside the writing.
TEST_F(HashedFile, IsOnTheDiskAsItWasGiven) {
  std::vector<std::int32_t> numbers((std::size_t{36} << 20) / sizeof(std::int32_t) + 3);
  std::iota(numbers.begin(), numbers.end(), 0);
  const Tensor tensor = tensor_of(std::span(numbers));
  const Tensor pieces[] = {tensor, Tensor(), tensor.slice(1, 1)};
  const FileHash written = write_synced(folder_ / "a", "begin", pieces);
  std::string expected = "begin";
  for (const Tensor& piece : pieces) {
    if (piece.bytes() > 0) expected.append(reinterpret_cast<char*>(piece.data()), piece.bytes());
  }
  EXPECT_TRUE(read_file(folder_ / "a") == expected);
  EXPECT_EQ(written, hash_of(expected));
  EXPECT_EQ(hash_of_file(folder_ / "a"), written);
}

TEST_F(HashedFile, IsTakenAwayUnlessFinishedAndReplacesNothing) {
  {
    SyncedFile file(folder_ / "a");
    file.write("half");
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a"));
  write_file(folder_ / "a", "mine");
  EXPECT_THROW(SyncedFile(folder_ / "a"), Error);
  EXPECT_EQ(read_file(folder_ / "a"), "mine");
}

}  // namespace
}  // namespace lockstep::io
