#include "lockstep/io/tier_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::io {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::size_t kSizes[] = {1, 0, 3, 17, 4095, 4096, 4097, 3 * 4096, 1'000'003, 5'000'011};

// Memory for a block, with content that its index and a round make.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : buffer_(std::max(TierFile::padded_bytes(bytes), Buffer::kPage)) {}
  std::span<std::byte> all() const { return {buffer_.data(), buffer_.bytes()}; }
  void fill(std::size_t block, unsigned round) const {
    std::memset(buffer_.data(), static_cast<int>(round), buffer_.bytes());
    for (std::size_t i = 0; i < buffer_.bytes(); i += 61) {
      buffer_.data()[i] = static_cast<std::byte>(i * 7 + block * 31 + round);
    }
  }
  bool equals(const Memory& other, std::size_t bytes) const {
    return std::memcmp(buffer_.data(), other.buffer_.data(), bytes) == 0;
  }

 private:
  Buffer buffer_;
};

std::string message_of(const std::function<void()>& call, ErrorCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

using Way = std::tuple<TierEngine, bool>;

class TierFileOf : public ::testing::TestWithParam<Way> {
 protected:
  void SetUp() override {
    if (std::get<0>(GetParam()) == TierEngine::kUring && make_uring_engine() == nullptr) {
      GTEST_SKIP() << "this system does not allow io_uring";
    }
  }
  TierFileOptions options(double bytes_per_second = 0) const {
    return {.folder = scratch_.path(),
            .what = "optimizer states",
            .engine = std::get<0>(GetParam()),
            .direct = std::get<1>(GetParam()),
            .bytes_per_second = bytes_per_second};
  }

  ScratchFolder scratch_;
};

INSTANTIATE_TEST_SUITE_P(, TierFileOf,
                         ::testing::Combine(::testing::Values(TierEngine::kUring,
                                                              TierEngine::kThreads),
                                            ::testing::Bool()),
                         [](const auto& way) {
                           const bool uring = std::get<0>(way.param) == TierEngine::kUring;
                           return std::string(uring ? "Uring" : "Threads") +
                                  (std::get<1>(way.param) ? "Direct" : "Buffered");
                         });

TEST_P(TierFileOf, GivesBackBlocksOfAnySizeWrittenAndReadAllAtOnce) {
  TierFile file(options(), kSizes);
  ASSERT_EQ(file.blocks(), std::size(kSizes));
  EXPECT_EQ(file.engine(), std::get<0>(GetParam()) == TierEngine::kUring ? "io_uring" : "threads");
  EXPECT_TRUE(std::filesystem::is_empty(scratch_.path())) << "it has a name";
  std::vector<Memory> written;
  std::vector<Memory> read;
  for (const std::size_t bytes : kSizes) {
    written.emplace_back(bytes);
    read.emplace_back(bytes);
  }
  for (unsigned round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < file.blocks(); ++i) {
      written[i].fill(i, round);
      file.write(i, written[i].all());
    }
    // Not waited for: a read comes behind the write of its block.
    std::vector<TierFile::Ticket> tickets;
    for (std::size_t i = file.blocks(); i-- > 0;) tickets.push_back(file.read(i, read[i].all()));
    for (const TierFile::Ticket ticket : tickets) file.wait(ticket);
    for (std::size_t i = 0; i < file.blocks(); ++i) {
      EXPECT_TRUE(read[i].equals(written[i], kSizes[i])) << "block " << i << ", round " << round;
    }
  }
  std::uint64_t bytes = 0;
  for (const std::size_t each : kSizes) bytes += 3 * each;
  EXPECT_EQ(file.traffic().read_bytes, bytes);
  EXPECT_EQ(file.traffic().written_bytes, bytes);
}

TEST_P(TierFileOf, TakesMoreTransfersAtOnceThanTheKernelsRingHas) {
  const std::vector<std::size_t> sizes(150, 5000);
  TierFile file(options(), sizes);
  std::vector<Memory> memory;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    memory.emplace_back(sizes[i]).fill(i, 1);
    file.write(i, memory[i].all());
  }
  file.wait();
  const Memory expected(5000);
  const Memory came(5000);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    expected.fill(i, 1);
    file.wait(file.read(i, came.all()));
    EXPECT_TRUE(came.equals(expected, 5000)) << i;
  }
}

// The file is changed behind its back, under the descriptor's other name.
TEST_P(TierFileOf, TellsABitThatFlippedOnTheDisk) {
  const std::size_t sizes[] = {5000, 9000};
  TierFile file(options(), sizes);
  const Memory memory(9000);
  for (const std::size_t block : {0u, 1u}) {
    memory.fill(block, 1);
    file.wait(file.write(block, memory.all()));
  }
  const std::string name = "/proc/self/fd/" + std::to_string(file.descriptor());
  const UniqueFd other(::open(name.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(other) << std::strerror(errno);
  constexpr off_t kOffset = 8192 + 8999;  // the last byte of the second block
  char byte = 0;
  ASSERT_EQ(::pread(other.get(), &byte, 1, kOffset), 1);
  byte = static_cast<char>(byte ^ 4);
  ASSERT_EQ(::pwrite(other.get(), &byte, 1, kOffset), 1);

  file.wait(file.read(0, memory.all()));
  EXPECT_THAT(
      message_of([&] { file.wait(file.read(1, memory.all())); }, ErrorCode::kProtocol),
      AllOf(HasSubstr("block 1 of the file of optimizer states in " + scratch_.path().string()),
            HasSubstr("9000 bytes at offset 8192"), HasSubstr("damaged")));
  // Written again it is good again.
  file.wait(file.write(1, memory.all()));
  file.wait(file.read(1, memory.all()));
}

TEST_P(TierFileOf, TellsAFileThatWasCutShort) {
  const std::size_t sizes[] = {4096, 3 * 4096};
  TierFile file(options(), sizes);
  const Memory memory(3 * 4096);
  memory.fill(1, 1);
  file.wait(file.write(1, memory.all()));
  ASSERT_EQ(::ftruncate(file.descriptor(), 2 * 4096), 0);  // a page of it is left
  EXPECT_THAT(message_of([&] { file.wait(file.read(1, memory.all())); }, ErrorCode::kSystem),
              AllOf(HasSubstr("cannot read block 1"), HasSubstr("the file ends before it"),
                    HasSubstr("checkpoint")));
}

// Writing over the largest size that a process may give a file fails as a full disk does.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  ~SmallFiles() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_P(TierFileOf, TellsAWriteThatHasNoRoomAndGoesOnAfterwards) {
  const std::size_t sizes[] = {4096, 4096, 3 * 4096};
  TierFile file(options(), sizes);
  const Memory memory(3 * 4096);
  memory.fill(2, 1);
  {
    const SmallFiles small(3 * 4096);  // one page of the last block fits
    file.wait(file.write(1, memory.all()));
    EXPECT_THAT(message_of([&] { file.wait(file.write(2, memory.all())); }, ErrorCode::kSystem),
                AllOf(HasSubstr("cannot write block 2 of the file of optimizer states"),
                      HasSubstr("offload.folder"), HasSubstr("last checkpoint")));
  }
  file.wait(file.write(2, memory.all()));
  file.wait(file.read(2, memory.all()));
}

TEST_P(TierFileOf, LetsGoWhileTransfersAreUnderWay) {
  const std::size_t sizes[] = {std::size_t{8} << 20, 1};
  const Memory memory(sizes[0]);
  TierFile file(options(), sizes);
  memory.fill(0, 1);
  file.write(0, memory.all());
}

TEST_P(TierFileOf, IsAsSlowAsItIsToldToBe) {
  constexpr std::size_t kBytes = 200 * 4096;
  const std::size_t sizes[] = {kBytes, kBytes};
  TierFile file(options(10 * kBytes), sizes);  // ten blocks a second
  const Memory a(kBytes);
  const Memory b(kBytes);
  a.fill(0, 1);
  b.fill(1, 1);
  file.write(0, a.all());
  file.write(1, b.all());
  file.wait();
  EXPECT_GE(file.traffic().waited_seconds, 0.19);
}

TEST(TierFile, RefusesBeforeItBeginsWhatHasNoRoom) {
  const ScratchFolder scratch;
  const std::size_t huge[] = {std::size_t{1} << 60};
  const auto make = [&] { TierFile({.folder = scratch.path(), .what = "parameters"}, huge); };
  EXPECT_THAT(
      message_of(make, ErrorCode::kSystem),
      AllOf(HasSubstr("parameters need a file of 1048576 TiB in " + scratch.path().string()),
            HasSubstr("free there"), HasSubstr("No space left"), HasSubstr("offload.folder")));
  const SmallFiles small(4096);
  const std::size_t sizes[] = {4097};
  EXPECT_THAT(message_of([&] { TierFile({.folder = scratch.path(), .what = "a"}, sizes); },
                         ErrorCode::kSystem),
              HasSubstr("File too large"));
}

TEST(TierFile, RefusesAFolderThereIsNot) {
  const ScratchFolder scratch;
  EXPECT_THAT(message_of([&] { TierFile({.folder = scratch.path() / "none", .what = "a"}, {}); },
                         ErrorCode::kInvalidArgument),
              AllOf(HasSubstr("none', which is not a folder"), HasSubstr("offload.folder")));
}

TEST(TierFile, RefusesMemoryThatDirectTransfersCannotTakeAndBlocksNeverWritten) {
  const ScratchFolder scratch;
  const std::size_t sizes[] = {4097};
  TierFile file({.folder = scratch.path(), .what = "a"}, sizes);
  const Memory memory(3 * 4096);
  EXPECT_THAT(message_of([&] { file.read(0, memory.all()); }, ErrorCode::kInvalidArgument),
              HasSubstr("never written"));
  EXPECT_THROW(file.write(0, memory.all().subspan(64)), Error);
  EXPECT_THROW(file.write(0, memory.all().first(4097)), Error);
  file.wait(file.write(0, memory.all()));
}

}  // namespace
}  // namespace lockstep::io
