// Residuals on a GPU go to a checkpoint's file and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/single_worker.h"
#include "lockstep/train/checkpoint/residual_exchange.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::train::cuda_residuals_test {
namespace {

using lockstep::testing::kGpu;

class CudaResiduals : public lockstep::testing::OnGpu<::testing::Test> {};

constexpr std::size_t kElements = (std::size_t{1} << 20) + 37;  // more than one chunk

std::vector<float> values_of(int worker) {
  std::vector<float> values(kElements);
  for (std::size_t i = 0; i < kElements; ++i) {
    values[i] = static_cast<float>(i % 1013) + static_cast<float>(worker);
  }
  return values;
}

// Has a residual on a GPU.
class GpuKeeper : public parallel::SingleWorker {
 public:
  explicit GpuKeeper(const std::vector<float>& values)
      : SingleWorker(parallel::Reduction::kFast, 1), memory_(kElements * sizeof(float), kGpu) {
    memory_of(kGpu).copy(memory_.data(), reinterpret_cast<const std::byte*>(values.data()),
                         memory_.bytes());
  }
  std::vector<parallel::Residual> residuals() override {
    return {{.range = {0, kElements},
             .values = {reinterpret_cast<float*>(memory_.data()), kElements},
             .device = kGpu}};
  }
  std::vector<float> fetched() const {
    std::vector<float> values(kElements);
    memory_of(kGpu).copy(reinterpret_cast<std::byte*>(values.data()), memory_.data(),
                         memory_.bytes());
    return values;
  }

 private:
  Buffer memory_;
};

void save(int workers, const std::filesystem::path& file) {
  run_threads(workers, [&](Communicator& world) {
    RunGroup group(&world);
    GpuKeeper keeper(values_of(world.rank()));
    ResidualExchange exchange(group, keeper, kElements);
    if (group.leads()) {
      exchange.write(file)->finish();
    } else {
      exchange.give();
    }
    EXPECT_TRUE(exchange.settle(group.leads()));
  });
}

std::vector<std::vector<float>> restored(int workers, const std::filesystem::path& file) {
  std::vector<std::vector<float>> all(static_cast<std::size_t>(workers));
  run_threads(workers, [&](Communicator& world) {
    RunGroup group(&world);
    GpuKeeper keeper(std::vector<float>(kElements, 99.0f));
    ResidualExchange exchange(group, keeper, kElements);
    exchange.restore(group.leads() ? std::optional(file) : std::nullopt, [](const std::string&) {});
    all[static_cast<std::size_t>(world.rank())] = keeper.fetched();
  });
  return all;
}

TEST_F(CudaResiduals, GoToAFileAndBack) {
  const ScratchFolder folder;
  save(3, folder.path() / "file");
  const auto same = restored(3, folder.path() / "file");
  for (int worker = 0; worker < 3; ++worker) {
    EXPECT_TRUE(same[static_cast<std::size_t>(worker)] == values_of(worker)) << worker;
  }
  for (const auto& half : restored(2, folder.path() / "file")) {
    for (const std::size_t i : {std::size_t{0}, std::size_t{1000}, kElements - 1}) {
      EXPECT_EQ(half[i], (3 * static_cast<float>(i % 1013) + 3) / 2) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep::train::cuda_residuals_test
