#include "lockstep/parallel/compression/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

TEST(CompressionOptions, AreReadByName) {
  CompressionOptions options;
  Config config;
  bind(config, options);
  EXPECT_EQ(options.compression, Compression::kNone);
  for (const Compression compression : kAllCompressions) {
    config.set("parallel.compression=" + std::string(name(compression)));
    EXPECT_EQ(options.compression, compression);
  }
  config.set("parallel.compression_ratio=0.25");
  EXPECT_EQ(options.ratio, 0.25);
}

TEST(CompressionOptions, OutsideOfTheirRangeAreRefused) {
  CompressionOptions options;
  Config config;
  bind(config, options);
  EXPECT_THROW(config.set("parallel.compression=int3"), Error);
  EXPECT_THROW(config.set("parallel.compression_ratio=0"), Error);
  EXPECT_THROW(config.set("parallel.compression_ratio=1.5"), Error);
}

}  // namespace
}  // namespace lockstep::parallel
