#include "lockstep/nn/parameters/flat_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/tensor/device_memory.h"

namespace lockstep::nn {
namespace {

// Three blocks, the last one first in the flat buffer, one of them without a part here.
const std::vector<FlatRange> kParts = {{10'000, 5'001}, {7'000, 0}, {7'000, 3'000}, {0, 17}};

class FlatFileOf : public ::testing::TestWithParam<bool> {
 protected:
  FlatFile::Layout layout() const {
    return {.parts = kParts,
            .buffers = {DType::kF32, DType::kBF16},
            .chunk_elements = 1500,
            .overlaps = GetParam()};
  }
  io::TierFileOptions options() const {
    return {.folder = scratch_.path(), .what = "optimizer states"};
  }
  // Every element of the first flat buffer is its position and a number, those of the second a
  // number.
  static void fill(FlatFile& file, float more) {
    FlatFileStream stream(file, {{.writes = true}, {.writes = true}});
    while (const FlatChunk* chunk = stream.next()) {
      for (std::size_t i = 0; i < chunk->range.elements; ++i) {
        stream.buffer(0).as<float>()[i] = static_cast<float>(chunk->range.first + i) + more;
      }
      std::memset(stream.buffer(1).data(), static_cast<int>(more), stream.buffer(1).bytes());
    }
  }

  static std::vector<float> elements_of(const FlatFile& file, FlatRange range) {
    std::vector<float> elements;
    FlatFileReader reader(file);
    reader.read(0, range, [&](const Tensor& some) {
      const std::span<const float> values = some.as<const float>();
      elements.insert(elements.end(), values.begin(), values.end());
    });
    return elements;
  }

  ScratchFolder scratch_;
};

INSTANTIATE_TEST_SUITE_P(, FlatFileOf, ::testing::Bool(), [](const auto& overlaps) {
  return overlaps.param ? "Overlapped" : "OneAfterTheOther";
});

TEST_P(FlatFileOf, HasChunksOfItsPartsInTheOrderOfBlocks) {
  const std::vector<FlatChunk> chunks = layout().chunks();
  std::vector<std::pair<std::size_t, FlatRange>> came;
  for (const FlatChunk& chunk : chunks) came.emplace_back(chunk.block, chunk.range);
  const std::vector<std::pair<std::size_t, FlatRange>> expected = {
      {0, {10'000, 1500}}, {0, {11'500, 1500}}, {0, {13'000, 1500}}, {0, {14'500, 501}},
      {2, {7'000, 1500}},  {2, {8'500, 1500}},  {3, {0, 17}}};
  EXPECT_EQ(came, expected);
}

TEST_P(FlatFileOf, TakesTheMemoryAndTheFileThatItsLayoutSays) {
  reset_peak_memory({});
  const std::size_t before = memory_in_use({});
  FlatFile file(options(), layout());
  fill(file, 1);
  EXPECT_EQ(memory_in_use({}) - before, layout().staging_bytes());
  EXPECT_EQ(peak_memory({}) - before, layout().staging_bytes());
  EXPECT_EQ(layout().staging_bytes(), (GetParam() ? 3u : 1u) * (8192 + 4096));
  EXPECT_EQ(file.file().file_bytes(), layout().file_bytes());
}

TEST_P(FlatFileOf, GivesEveryChunkAsTheLastStreamLeftIt) {
  FlatFile file(options(), layout());
  fill(file, 1);
  for (const float step : {1.f, 2.f}) {
    FlatFileStream stream(file, {{.reads = true, .writes = true}, {}});
    while (const FlatChunk* chunk = stream.next()) {
      EXPECT_EQ(stream.buffer(1).elements(), 0u);
      for (std::size_t i = 0; i < chunk->range.elements; ++i) {
        float& x = stream.buffer(0).as<float>()[i];
        ASSERT_EQ(x, static_cast<float>(chunk->range.first + i) + step);
        x += 1;
      }
    }
  }
  // The unchanged flat buffer of one block.
  FlatFileStream stream(file, {{}, {.reads = true}}, 2);
  std::size_t elements = 0;
  while (const FlatChunk* chunk = stream.next()) {
    EXPECT_EQ(chunk->block, 2u);
    elements += chunk->range.elements;
    for (std::size_t i = 0; i < stream.buffer(1).bytes(); ++i) {
      ASSERT_EQ(stream.buffer(1).data()[i], std::byte{1});
    }
  }
  EXPECT_EQ(elements, 3000u);
  EXPECT_EQ(stream.next(), nullptr);
  FlatFileStream none(file, {{.reads = true, .writes = true}, {}}, 1);
  EXPECT_EQ(none.next(), nullptr);
}

TEST_P(FlatFileOf, WritesNothingThatAStreamWasLeftWith) {
  FlatFile file(options(), layout());
  fill(file, 1);
  {
    FlatFileStream stream(file, {{.reads = true, .writes = true}, {}});
    stream.next();
    stream.buffer(0).as<float>()[0] = -1;
  }
  EXPECT_EQ(elements_of(file, {10'000, 1}), std::vector<float>{10'001});
}

TEST_P(FlatFileOf, IsReadByRangesToo) {
  FlatFile file(options(), layout());
  fill(file, 1);
  std::vector<float> expected(3501);
  std::iota(expected.begin(), expected.end(), 11'001.f);
  EXPECT_EQ(elements_of(file, {11'000, 3501}), expected);  // of four chunks
  EXPECT_EQ(elements_of(file, {7'000, 0}), std::vector<float>());
  EXPECT_THROW(elements_of(file, {100, 1}), Error);
}

// An error is thrown where the chunk is used, and leaves the file usable.
TEST_P(FlatFileOf, HandsOnWhatFails) {
  FlatFile file(options(), layout());
  fill(file, 1);
  ASSERT_EQ(::ftruncate(file.file().descriptor(), 40'000), 0);
  EXPECT_THROW(
      {
        FlatFileStream stream(file, {{.reads = true, .writes = true}, {}});
        while (stream.next() != nullptr) {
        }
      },
      Error);
  fill(file, 2);
  EXPECT_EQ(elements_of(file, {16, 1}), std::vector<float>{18});
}

}  // namespace
}  // namespace lockstep::nn
