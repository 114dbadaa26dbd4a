// Codecs on a GPU against those of the CPU, bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/kernels/kernels.h"
#include "tests/parallel/compression/gradients.h"
#include "tests/parallel/cuda/device_floats.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::kGpu;
using testing::DeviceBytes;
using testing::DeviceFloats;
using ::testing::HasSubstr;
using testing::make_gradients;
using testing::same_floats;

class CudaCodecs : public lockstep::testing::OnGpu<::testing::Test> {};

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

constexpr Compression kCodecs[] = {Compression::kBf16,   Compression::kF16,    Compression::kInt8,
                                   Compression::kInt4,   Compression::kOnebit, Compression::kTopk,
                                   Compression::kRandomk};

// One more than a block, a tile, a segment, and what a grid has at once.
constexpr std::size_t kSizes[] = {0,    1,     2,     17,    63,    64,     65,
                                  127,  128,   129,   255,   257,   4095,   4096,
                                  4097, 65535, 65536, 65537, 70001, 131072, 300001};

std::vector<CompressionOptions> all_options() {
  std::vector<CompressionOptions> all;
  for (const Compression compression : kCodecs) {
    const bool is_sparse =
        compression == Compression::kTopk || compression == Compression::kRandomk;
    for (const double ratio : {0.01, 0.3, 1.0}) {
      if (ratio == 0.01 || is_sparse) all.push_back({.compression = compression, .ratio = ratio});
    }
  }
  return all;
}

// A codec with its own residual, step by step, on the CPU or a GPU.
struct Step {
  std::vector<std::byte> payload;
  std::vector<float> residual, decoded, added, cleared;
};

Step step_on_cpu(const CompressionOptions& options, std::span<const float> values,
                 std::vector<float>& residual, std::uint64_t seed) {
  const auto codec = make_codec(options);
  Step step;
  step.payload = testing::encoded(*codec, values, residual, seed);
  step.residual = residual;
  step.decoded = testing::decoded(*codec, step.payload, values.size(), seed);
  step.added.assign(values.begin(), values.end());
  codec->decode_add(step.payload, step.added, seed);
  step.cleared.assign(values.begin(), values.end());
  codec->clear_sent(step.payload, step.cleared, seed);
  return step;
}

Step step_on_gpu(CodecDevice& device, const CompressionOptions& options,
                 std::span<const float> values, std::vector<float>& residual, std::uint64_t seed,
                 std::size_t lead = 0) {
  const auto codec = device.make_codec(options);
  const DeviceFloats from(values), kept(residual), added(values), cleared(values);
  const DeviceFloats decoded(std::vector<float>(values.size(), 99.0f));
  const DeviceBytes payload(codec->bytes(values.size()), lead);
  const DeviceBytes scratch(codec->scratch_bytes(values.size()));
  device.run([&] {
    codec->encode(from.span(), kept.span(), payload.span(), scratch.span(), seed);
    codec->decode(payload.span(), decoded.span(), seed);
    codec->decode_add(payload.span(), added.span(), seed);
    codec->clear_sent(payload.span(), cleared.span(), seed);
  });
  residual = kept.fetched();
  return {.payload = payload.fetched(),
          .residual = residual,
          .decoded = decoded.fetched(),
          .added = added.fetched(),
          .cleared = cleared.fetched()};
}

void expect_same(const Step& gpu, const Step& cpu, bool same_payload) {
  if (same_payload) {
    EXPECT_EQ(gpu.payload, cpu.payload);
  } else {
    EXPECT_EQ(gpu.payload.size(), cpu.payload.size());
  }
  EXPECT_TRUE(same_floats(gpu.residual, cpu.residual));
  EXPECT_TRUE(same_floats(gpu.decoded, cpu.decoded));
  EXPECT_TRUE(same_floats(gpu.added, cpu.added));
  EXPECT_TRUE(same_floats(gpu.cleared, cpu.cleared));
}

TEST_F(CudaCodecs, MakeThePayloadsOfTheCpu) {
  const auto device = make_codec_device(kGpu);
  for (const CompressionOptions& options : all_options()) {
    for (const std::size_t size : kSizes) {
      for (const bool feeds_back : {false, true}) {
        SCOPED_TRACE(std::string(name(options.compression)) + " " + std::to_string(size) + " " +
                     std::to_string(options.ratio));
        std::vector<float> on_cpu(feeds_back ? size : 0, 0.0f);
        std::vector<float> on_gpu = on_cpu, again = on_cpu;
        for (std::uint64_t step = 0; step < 3; ++step) {
          const auto values = make_gradients(size, 77 + step);
          const Step cpu = step_on_cpu(options, values, on_cpu, step);
          expect_same(step_on_gpu(*device, options, values, on_gpu, step), cpu, true);
          // Again, and at another address.
          expect_same(step_on_gpu(*device, options, values, again, step, 1 + step), cpu, true);
        }
      }
    }
  }
}

// Equal magnitudes, zeros of both signs, numbers below those that a scale can have, and the
// largest.
TEST_F(CudaCodecs, MakeThePayloadsOfTheCpuOfOddNumbers) {
  const auto device = make_codec_device(kGpu);
  const float patterns[][4] = {
      {0.0f, -0.0f, 0.0f, -0.0f},      {1.0f, -1.0f, 1.0f, 1.0f},
      {1e-41f, -3e-42f, 0.0f, 2e-45f}, {0x1p-119f, -0x1p-120f, 0x1p-126f, 0.0f},
      {3e38f, -3.4e38f, 1e38f, 1.0f},  {1.0f, 0.5f, 127.0f, -63.5f}};
  for (const CompressionOptions& options : all_options()) {
    for (const auto& pattern : patterns) {
      SCOPED_TRACE(std::string(name(options.compression)) + " " + std::to_string(pattern[0]));
      std::vector<float> values(70001);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = pattern[i % 4];
      std::vector<float> on_cpu(values.size(), 0.0f);
      std::vector<float> on_gpu = on_cpu;
      const Step cpu = step_on_cpu(options, values, on_cpu, 9);
      expect_same(step_on_gpu(*device, options, values, on_gpu, 9), cpu, true);
    }
  }
}

TEST_F(CudaCodecs, KeepInfinityAndNanVisible) {
  const auto device = make_codec_device(kGpu);
  for (const CompressionOptions& options : all_options()) {
    for (const float odd : {kInfinity, -kInfinity, kNan}) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{130}, std::size_t{70000}}) {
        SCOPED_TRACE(std::string(name(options.compression)) + " " + std::to_string(place));
        auto values = make_gradients(70001, 5);
        values[place] = odd;
        std::vector<float> on_cpu(values.size(), 1e-4f);
        std::vector<float> on_gpu = on_cpu;
        const Step cpu = step_on_cpu(options, values, on_cpu, 9);
        const Step gpu = step_on_gpu(*device, options, values, on_gpu, 9);
        expect_same(gpu, cpu, !std::isnan(odd));
        EXPECT_FALSE(testing::all_finite(gpu.decoded));
        EXPECT_TRUE(testing::all_finite(gpu.residual));
      }
    }
  }
}

// What the host of a GPU gets when it decodes `payload`.
std::string error_of(const CompressionOptions& options, std::span<const std::byte> payload,
                     std::size_t elements) {
  const auto device = make_codec_device(kGpu);
  const auto codec = device->make_codec(options);
  const DeviceBytes there(payload);
  const DeviceFloats out(std::vector<float>(elements, 0.0f));
  try {
    device->run([&] { codec->decode(there.span(), out.span(), 0); });
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kProtocol);
    return error.what();
  }
  return "";
}

TEST_F(CudaCodecs, RefuseDamagedPayloads) {
  const CompressionOptions topk{.compression = Compression::kTopk, .ratio = 0.01};
  const auto values = make_gradients(100000, 3);
  const auto payload = testing::encoded(*make_codec(topk), values, {}, 0);
  EXPECT_EQ(error_of(topk, payload, values.size()), "");
  auto damaged = payload;
  damaged[3] = std::byte{255};  // the count of the first segment
  EXPECT_THAT(error_of(topk, damaged, values.size()), HasSubstr("more elements than are left"));
  damaged = payload;
  damaged[0] = damaged[0] ^ std::byte{1};
  EXPECT_THAT(error_of(topk, damaged, values.size()), HasSubstr("of a payload"));
  damaged = payload;
  std::swap(damaged[8], damaged[10]);  // the first two positions
  std::swap(damaged[9], damaged[11]);
  EXPECT_THAT(error_of(topk, damaged, values.size()), HasSubstr("do not rise"));
  damaged = payload;
  const std::size_t last = 8 + 2 * 999;  // position of the last element, in a segment of 34464
  damaged[last] = damaged[last + 1] = std::byte{255};
  EXPECT_THAT(error_of(topk, damaged, values.size()), HasSubstr("outside of it"));

  const CompressionOptions f16{.compression = Compression::kF16};
  auto halves = testing::encoded(*make_codec(f16), values, {}, 0);
  EXPECT_EQ(error_of(f16, halves, values.size()), "");
  halves[f16_block_bytes(kBlock)] = std::byte{3};
  EXPECT_THAT(error_of(f16, halves, values.size()), HasSubstr("block 1"));
}

TEST_F(CudaCodecs, EncodeAndSumPartsAsTheCpu) {
  CodecDevice& cpu = cpu_codec_device();
  const auto gpu = make_codec_device(kGpu);
  for (const Compression format : {Compression::kInt8, Compression::kInt4}) {
    const auto codec = make_codec({.compression = format});
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      for (const std::size_t size : {0, 1, 65, 128, 129, 4096, 70001}) {
        SCOPED_TRACE(std::string(name(format)) + " " + std::string(name(dtype)) + " " +
                     std::to_string(size));
        constexpr std::size_t kParts = 3;
        const std::size_t each = codec->bytes(size);
        std::vector<std::byte> payloads(kParts * each), own(size * size_of(dtype));
        const DeviceBytes there(payloads.size());
        for (std::size_t i = 0; i < kParts; ++i) {
          narrow(make_gradients(size, 40 + i), {own.data(), size, dtype});
          cpu.encode_part(format, {own.data(), size, dtype},
                          std::span(payloads).subspan(i * each, each));
          const DeviceBytes part(own);
          gpu->run([&] {
            gpu->encode_part(format, {part.data(), size, dtype},
                             there.span().subspan(i * each, each));
          });
        }
        EXPECT_EQ(there.fetched(), payloads);
        std::vector<std::byte> out(own.size());
        const DeviceBytes of_gpu(out.size());
        cpu.decode_part(format, std::span(payloads).first(each), {out.data(), size, dtype});
        gpu->run([&] {
          gpu->decode_part(format, there.span().first(each), {of_gpu.data(), size, dtype});
        });
        EXPECT_EQ(of_gpu.fetched(), out);
        const DeviceBytes own_there(own);
        for (std::size_t place = 0; place < kParts; ++place) {
          cpu.sum_parts(format, {.payloads = payloads,
                                 .own = place,
                                 .own_part = {own.data(), size, dtype},
                                 .out = {out.data(), size, dtype}});
          gpu->run([&] {
            gpu->sum_parts(format, {.payloads = there.span(),
                                    .own = place,
                                    .own_part = {own_there.data(), size, dtype},
                                    .out = {of_gpu.data(), size, dtype}});
          });
          EXPECT_EQ(of_gpu.fetched(), out);
        }
      }
    }
  }
}

TEST_F(CudaCodecs, ConvertAndAverageAsTheCpu) {
  CodecDevice& cpu = cpu_codec_device();
  const auto gpu = make_codec_device(kGpu);
  auto values = make_gradients(70001, 8);
  values[3] = kInfinity;
  values[4] = 1e-7f;  // subnormal as f16
  values[5] = 70000;  // infinity as f16
  for (const DType one : {DType::kF32, DType::kBF16, DType::kF16}) {
    std::vector<std::byte> from(values.size() * size_of(one));
    narrow(values, {from.data(), values.size(), one});
    for (const DType other : {DType::kF32, DType::kBF16, DType::kF16}) {
      std::vector<std::byte> to(values.size() * size_of(other));
      cpu.convert({from.data(), values.size(), one}, {to.data(), values.size(), other});
      const DeviceBytes from_there(from), to_there(to.size());
      gpu->run([&] {
        gpu->convert({from_there.data(), values.size(), one},
                     {to_there.data(), values.size(), other});
      });
      EXPECT_EQ(to_there.fetched(), to) << name(one) << " " << name(other);
    }
  }
  values[3] = 0;
  for (const double limit : {0.0, 0.05}) {
    OwnClip of_cpu, of_gpu;
    auto averages = make_gradients(values.size(), 9);
    const DeviceFloats there(averages), gradients(values);
    for (int step = 0; step < 2; ++step) {
      of_cpu.begin_step(limit, 2);
      of_gpu.begin_step(limit, 2);
      for (const auto& [first, count] : {std::pair(0, 30001), std::pair(30001, 40000)}) {
        const auto begin = static_cast<std::size_t>(first), size = static_cast<std::size_t>(count);
        cpu.average(std::span(values).subspan(begin, size),
                    std::span(averages).subspan(begin, size),
                    {.keep = 0.9f, .take = 0.1f, .clip = &of_cpu});
        gpu->run([&] {
          gpu->average(gradients.span().subspan(begin, size), there.span().subspan(begin, size),
                       {.keep = 0.9f, .take = 0.1f, .clip = &of_gpu});
        });
      }
    }
    const auto got = there.fetched();
    if (limit == 0) {
      EXPECT_TRUE(same_floats(got, averages));
    } else {
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], averages[i], 1e-6f * std::fabs(averages[i]) + 1e-12f) << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
