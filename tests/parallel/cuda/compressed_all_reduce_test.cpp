// The compressed all-reduce of ranks that share a GPU, against the same ranks on the CPU.
#include "lockstep/parallel/compression/compressed_all_reduce.h"

#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/native/threads.h"
#include "tests/parallel/compression/gradients.h"
#include "tests/parallel/cuda/device_floats.h"

namespace lockstep::parallel {
namespace {

using lockstep::testing::kGpu;
using testing::DeviceBytes;
using testing::make_gradients;

class CudaCompressedAllReduce : public lockstep::testing::OnGpu<::testing::Test> {};

constexpr int kSteps = 3;
constexpr float kScale = 0.5f;  // of residuals, after the first step

struct Outcome {
  std::vector<std::vector<std::byte>> results;  // by rank and step
  std::vector<std::vector<float>> residuals;    // by rank
  std::vector<std::uint64_t> sent;              // by rank, of all steps
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

std::vector<std::byte> bytes_of_gradients(int rank, int step, std::size_t elements, DType dtype) {
  std::vector<std::byte> bytes(elements * size_of(dtype));
  narrow(make_gradients(elements, static_cast<std::uint64_t>(1000 * step + rank)),
         {bytes.data(), elements, dtype});
  return bytes;
}

// `on`: the device of gradients, residuals and payloads.
Outcome outcome_on(Device on, int ranks, const CompressionOptions& options, std::size_t elements,
                   DType dtype) {
  Outcome outcome;
  const auto count = static_cast<std::size_t>(ranks);
  outcome.results.resize(count * kSteps);
  outcome.residuals.resize(count);
  outcome.sent.resize(count);
  run_threads(ranks, [&](Communicator& world) {
    const auto rank = static_cast<std::size_t>(world.rank());
    std::unique_ptr<Communicator> group = world.split(0, world.rank());
    if (on != Device{}) group = make_device_communicator(std::move(group), {.device = on});
    const auto needed = CompressedAllReduce::memory(elements, dtype, ranks, options, on);
    const Buffer residual(needed.residual_elements * sizeof(float), on);
    const auto device = make_codec_device(on);
    const SymmetricBuffer staging = group->allocate(needed.staging_bytes);
    const SymmetricBuffer gradients = group->allocate(elements * size_of(dtype));
    CompressedAllReduce all_reduce(
        *group, options, elements, dtype,
        {reinterpret_cast<float*>(residual.data()), needed.residual_elements},
        {staging.data(), needed.staging_bytes}, *device);
    all_reduce.set_momentum({.keep = 0.5f, .take = 0.5f});
    DeviceMemory& memory = memory_of(on);
    for (int step = 0; step < kSteps; ++step) {
      const auto values = bytes_of_gradients(world.rank(), step, elements, dtype);
      memory.copy(gradients.data(), values.data(), values.size());
      outcome.sent[rank] +=
          all_reduce.run({gradients.data(), elements, dtype}, static_cast<std::uint64_t>(step));
      auto& result = outcome.results[rank * kSteps + static_cast<std::size_t>(step)];
      result.resize(values.size());
      memory.copy(result.data(), gradients.data(), result.size());
      if (step == 0) all_reduce.scale_residual(kScale);
    }
    auto& kept = outcome.residuals[rank];
    kept.resize(needed.residual_elements);
    memory.copy(reinterpret_cast<std::byte*>(kept.data()), residual.data(),
                kept.size() * sizeof(float));
    world.barrier();  // memory of a GPU is freed when all are done
  });
  return outcome;
}

TEST_F(CudaCompressedAllReduce, GivesTheBitsOfTheCpuAndSendsAsMuch) {
  for (const Compression compression :
       {Compression::kInt8, Compression::kInt4, Compression::kOnebit, Compression::kTopk,
        Compression::kRandomk, Compression::kF16, Compression::kBf16}) {
    const CompressionOptions options{.compression = compression, .ratio = 0.05};
    for (const int ranks : {2, 3, 5}) {
      // An all-reduce of bf16 sums in the order of its device.
      if (compression == Compression::kBf16 && ranks > 2) continue;
      for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
        if (dtype != DType::kF32 && ranks != 3) continue;
        for (const std::size_t elements : {1, 129, 1000, 200003}) {
          SCOPED_TRACE(std::string(name(compression)) + " " + std::string(name(dtype)) + " " +
                       std::to_string(ranks) + " ranks " + std::to_string(elements));
          const Outcome cpu = outcome_on({}, ranks, options, elements, dtype);
          const Outcome gpu = outcome_on(kGpu, ranks, options, elements, dtype);
          EXPECT_EQ(gpu.results, cpu.results);
          EXPECT_EQ(gpu.residuals, cpu.residuals);
          if (compression != Compression::kBf16) {
            EXPECT_EQ(gpu.sent, cpu.sent);
          }
          for (std::size_t r = 1; r < static_cast<std::size_t>(ranks); ++r) {
            for (std::size_t step = 0; step < kSteps; ++step) {
              EXPECT_EQ(gpu.results[r * kSteps + step], gpu.results[step]);
            }
          }
        }
      }
    }
  }
}

TEST_F(CudaCompressedAllReduce, GivesTheSameBitsAgain) {
  for (const Compression compression : {Compression::kInt8, Compression::kTopk}) {
    const CompressionOptions options{.compression = compression, .ratio = 0.05};
    const Outcome once = outcome_on(kGpu, 3, options, 100001, DType::kF32);
    const Outcome again = outcome_on(kGpu, 3, options, 100001, DType::kF32);
    EXPECT_EQ(once, again);
  }
}

}  // namespace
}  // namespace lockstep::parallel
