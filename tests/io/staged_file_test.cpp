#include "lockstep/io/staged_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <random>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::io::staged_file_test {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kPiece = std::size_t{1} << 20;
// Of no piece, of one, of a whole one, of many; addresses below are odd besides.
const std::vector<std::size_t> kItems = {
    1, 0, 4097, kPiece, kPiece + 1, 7 * kPiece, 5 * kPiece + 77, 3};

Bytes random_bytes(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  Bytes bytes(count + 1);  // the first is left out: what follows has an odd address
  for (std::size_t i = 0; i < bytes.size(); i += 1 + random() % 4096) {
    bytes[i] = static_cast<std::uint8_t>(random());
  }
  return bytes;
}

Tensor tensor_of_item(Bytes& bytes) { return tensor_of(std::span(bytes).subspan(1)); }

class StagedFileOf : public ::testing::TestWithParam<bool> {
 protected:
  StagedFile::Layout layout() const { return {.items = kItems, .overlaps = GetParam()}; }
  TierFileOptions options() const { return {.folder = scratch_.path(), .what = "items"}; }
  ScratchFolder scratch_;
};

INSTANTIATE_TEST_SUITE_P(, StagedFileOf, ::testing::Bool(), [](const auto& overlaps) {
  return std::string(overlaps.param ? "Overlapped" : "OneByOne");
});

TEST_P(StagedFileOf, GivesBackItemsOfAnySizeFromAnyAddress) {
  StagedFile file(options(), layout());
  EXPECT_EQ(file.file().file_bytes(), file.layout().file_bytes());
  EXPECT_EQ(file.layout().staging_bytes(), (GetParam() ? 4 : 1) * kPiece);
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<Bytes> stored;
    for (std::size_t i = 0; i < kItems.size(); ++i) {
      Bytes bytes = random_bytes(kItems[i], round * 100 + static_cast<unsigned>(i));
      stored.push_back(bytes);
      file.store(i, tensor_of_item(bytes));
      std::ranges::fill(bytes, std::uint8_t{0});  // it is free by now
    }
    std::vector<Bytes> came;
    std::vector<StagedFile::Part> parts;
    for (std::size_t i = 0; i < kItems.size(); ++i) came.push_back(random_bytes(kItems[i], 99));
    for (std::size_t i = kItems.size(); i-- > 0;) {
      came[i][0] = stored[i][0];
      parts.push_back({.item = i, .first = 0, .to = tensor_of_item(came[i])});
    }
    file.fetch(parts);
    EXPECT_EQ(came, stored) << round;
  }
}

TEST_P(StagedFileOf, ReadsPartsThatFollowEachOtherOnce) {
  StagedFile file(options(), layout());
  constexpr std::size_t kItem = 6;
  Bytes stored = random_bytes(kItems[kItem], 1);
  file.store(kItem, tensor_of_item(stored));
  Bytes came(stored.size());
  came[0] = stored[0];
  for (std::size_t done = 0; done < kItems[kItem];) {
    const std::size_t count = std::min<std::size_t>(100'003, kItems[kItem] - done);
    file.fetch(kItem, done, tensor_of(std::span(came).subspan(1 + done, count)));
    done += count;
  }
  EXPECT_EQ(came, stored);
  EXPECT_EQ(file.file().traffic().read_bytes, kItems[kItem]);
  // What is stored again is not taken from there.
  Bytes other = random_bytes(kItems[kItem], 2);
  file.store(kItem, tensor_of_item(other));
  came[0] = other[0];
  file.fetch(kItem, 0, tensor_of_item(came));
  EXPECT_EQ(came, other);
}

TEST_P(StagedFileOf, TellsWhatCameBackOtherThanItWent) {
  StagedFile file(options(), layout());
  Bytes stored = random_bytes(kItems[4], 1);
  file.store(4, tensor_of_item(stored));
  Bytes other = random_bytes(kItems[5], 1);
  file.store(5, tensor_of_item(other));
  file.fetch(5, 0, tensor_of_item(other));          // what was written is there
  const std::size_t before = 4096 + 8192 + kPiece;  // of the items in front
  const UniqueFd behind(::open(
      ("/proc/self/fd/" + std::to_string(file.file().descriptor())).c_str(), O_RDWR | O_CLOEXEC));
  std::uint8_t byte = 0;
  ASSERT_EQ(::pread(behind.get(), &byte, 1, static_cast<off_t>(before + 5)), 1);
  ASSERT_EQ(byte, stored[1 + 5]);
  byte ^= 1;
  ASSERT_EQ(::pwrite(behind.get(), &byte, 1, static_cast<off_t>(before + 5)), 1);
  Bytes came(stored.size());
  for (int again = 0; again < 2; ++again) {
    try {
      file.fetch(4, 0, tensor_of_item(came));
      FAIL() << "it was given out";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kProtocol);
      EXPECT_THAT(error.what(), HasSubstr("of the file of items"));
    }
  }
  file.fetch(5, 0, tensor_of_item(other));
}

TEST_P(StagedFileOf, RefusesBytesThatAnItemHasNot) {
  StagedFile file(options(), layout());
  Bytes bytes(10);
  const Tensor some = tensor_of(std::span(bytes));
  EXPECT_THROW(file.store(7, some), Error);
  EXPECT_THROW(file.store(2, some), Error);
  EXPECT_THROW(file.fetch(7, 0, some), Error);
  EXPECT_THROW(file.fetch(2, 4097 - 9, some), Error);
  EXPECT_THROW(file.fetch(2, 0, some), Error) << "it was never stored";
}

TEST(StagedFile, WithoutItemsTakesNothing) {
  const StagedFile::Layout none;
  EXPECT_EQ(none.staging_bytes(), 0u);
  EXPECT_EQ(none.file_bytes(), 0u);
}

}  // namespace
}  // namespace lockstep::io::staged_file_test
