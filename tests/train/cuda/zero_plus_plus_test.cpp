// ZeRO++ of workers that share a GPU, as threads on emulated nodes: what they exchange has the bits
// of the CPU, and training takes the memory that is planned.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/zero/exchange.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/tensor/cuda/gpu.h"
#include "tests/train/run/emulated_nodes.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::cuda_zero_plus_plus_test {
namespace {

using lockstep::testing::kGpu;
using parallel::Quantization;
using Floats = std::vector<float>;

class CudaZeroPlusPlus : public lockstep::testing::OnGpu<::testing::Test> {};

struct Spread {
  int workers;
  int nodes;
};

TrainOptions options_of(Device device, int zero, const Spread& spread, plan::Precision precision) {
  TrainOptions options = tiny_options(precision);
  options.batch = {.sequence = 7, .sequences = 8, .micro = 1, .workers = spread.workers};
  options.node_place.ranks = spread.workers;
  options.parallel.zero = zero;
  options.parallel.machines = spread.nodes;
  options.parallel.device = device;
  options.share_device = true;
  options.device = device == Device{} ? "cpu" : "cuda";
  options.threads = 1;
  return options;
}

// work(world, ops) at every worker.
template <class Work>
void at_workers(const TrainOptions& options, const Spread& spread, Work&& work) {
  run_threads(spread.workers, [&](Communicator& threads) {
    EmulatedNodes world(threads, spread.nodes);
    const auto ops = make_ops(options.parallel.device, 1);
    work(world, *ops);
    threads.barrier();  // memory of a GPU is freed when all are done
  });
}

std::vector<std::byte> numbers(std::uint64_t seed, std::size_t elements, DType dtype) {
  Floats values(elements);
  for (std::size_t i = 0; i < elements; ++i) values[i] = normal_at(seed, 3, i);
  std::vector<std::byte> bytes(elements * size_of(dtype));
  parallel::narrow(values, {bytes.data(), elements, dtype});
  return bytes;
}

// What every worker gathers, twice, and its sums, of all units.
using Exchanged = std::vector<std::vector<std::vector<std::byte>>>;  // by worker

Exchanged exchanged(const TrainOptions& options, const Spread& spread) {
  Exchanged all(static_cast<std::size_t>(spread.workers));
  at_workers(options, spread, [&](Communicator& world, Ops& ops) {
    const Device device = options.parallel.device;
    DeviceMemory& memory = memory_of(device);
    const auto worker = static_cast<std::uint64_t>(world.rank());
    const nn::MemoryPlan plan = plan_run(options, ops, world.rank());
    const auto way = parallel::make_exchange(world, options.parallel);
    std::size_t most = 0;
    for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
      most = std::max(most, plan.flat.range(unit).elements * sizeof(float));
    }
    // As replicas have them: parameters and gradients are where all workers can read them.
    const SymmetricBuffer memory_of_parts = way->allocate(most);
    const SymmetricBuffer memory_of_units = way->allocate(most);
    way->start(plan);
    const auto tensor = [&](const SymmetricBuffer& buffer, DType dtype, std::size_t elements) {
      return Tensor(buffer.data(), dtype, {static_cast<std::int64_t>(elements)}, device);
    };
    const auto fetched = [&](const Tensor& from) {
      std::vector<std::byte> bytes(from.bytes());
      memory.copy(bytes.data(), from.data(), bytes.size());
      return bytes;
    };
    for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
      const std::size_t elements = plan.flat.range(unit).elements;
      const std::size_t part = elements / static_cast<std::size_t>(spread.workers);
      const DType dtype = plan.setup.dtype;
      for (int again = 0; again < 2; ++again) {
        const Tensor mine = tensor(memory_of_parts, dtype, part);
        const Tensor whole = tensor(memory_of_units, dtype, elements);
        const auto values = numbers(100 * unit + worker, part, dtype);
        memory.copy(mine.data(), values.data(), values.size());
        way->gather(unit, mine, whole);
        all[worker].push_back(fetched(whole));
      }
      const DType gradient = plan.setup.gradient;
      const Tensor mine = tensor(memory_of_parts, gradient, part);
      const Tensor gradients = tensor(memory_of_units, gradient, elements);
      const auto values = numbers(7000 + 100 * unit + worker, elements, gradient);
      world.barrier();  // nobody still reads what the gather left
      memory.copy(gradients.data(), values.data(), values.size());
      way->add_up(unit, gradients, mine);
      all[worker].push_back(fetched(mine));
      world.barrier();
    }
  });
  return all;
}

// At most two workers of a node: their sum has one order only.
TEST_F(CudaZeroPlusPlus, ExchangesTheBitsOfTheCpu) {
  for (const Spread& spread : {Spread{2, 1}, Spread{2, 2}, Spread{4, 2}, Spread{3, 3}}) {
    for (const auto precision :
         {plan::Precision::kF32, plan::Precision::kBf16, plan::Precision::kF16}) {
      for (const Quantization quantization : {Quantization::kInt8, Quantization::kInt4}) {
        for (const bool secondary : {false, true}) {
          const auto outcome_on = [&](Device device) {
            TrainOptions options = options_of(device, 3, spread, precision);
            options.parallel.quantized_weights = quantization;
            options.parallel.quantized_gradients = quantization;
            options.parallel.secondary_partition = secondary;
            return exchanged(options, spread);
          };
          EXPECT_EQ(outcome_on(kGpu), outcome_on({}))
              << spread.workers << " on " << spread.nodes << ", " << parallel::name(quantization)
              << ", " << secondary;
        }
      }
    }
  }
}

struct Trained {
  std::vector<double> losses;
  std::vector<std::uint64_t> sent;
  WholeStates states;
  friend bool operator==(const Trained&, const Trained&) = default;
};

// Also checks the planned memory.
Trained train(const TrainOptions& options, const Spread& spread, int steps) {
  Trained result;
  std::mutex mutex;
  const Device device = options.parallel.device;
  const std::size_t before = memory_in_use(device);
  std::atomic<std::size_t> planned{0};
  at_workers(options, spread, [&](Communicator& world, Ops& ops) {
    const auto strategy =
        parallel::make_strategy({.options = options.parallel,
                                 .optimizer = options.optimizer,
                                 .most_micro_batches = solved(options.batch).accumulation},
                                &world);
    Trainer trainer(options, ops, *strategy);
    trainer.start();
    std::vector<double> losses;
    std::vector<std::uint64_t> sent;
    run_steps(trainer, steps, [&](const StepMetrics& metrics) {
      losses.push_back(metrics.loss);
      sent.clear();
      for (const parallel::StepCost& cost : metrics.costs) sent.push_back(cost.bytes_sent);
      trainer.strategy().compare_workers(true);
    });
    planned += trainer.replica().plan().bytes(Tier::kDevice);
    world.barrier();
    if (device != Device{}) {
      EXPECT_EQ(memory_in_use(device) - before, planned);
    }
    {
      const std::lock_guard lock(mutex);
      if (result.losses.empty()) result.losses = losses;
      EXPECT_EQ(losses, result.losses);
      result.sent = sent;
      take_states(trainer.replica(), result.states);
    }
    world.barrier();
  });
  return result;
}

TEST_F(CudaZeroPlusPlus, LearnsAsOnTheCpuAndSendsTheSameBytes) {
  constexpr int kTrainedSteps = 8;
  for (const Spread& spread : {Spread{2, 1}, Spread{2, 2}, Spread{4, 2}}) {
    for (int stage = 1; stage <= 3; ++stage) {
      for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
        SCOPED_TRACE(std::to_string(spread.workers) + " on " + std::to_string(spread.nodes) +
                     ", stage " + std::to_string(stage));
        const auto settings = [&](Device device) {
          TrainOptions options = options_of(device, stage, spread, precision);
          options.parallel.quantized_gradients = Quantization::kInt4;
          if (stage == 3) {
            options.parallel.quantized_weights = Quantization::kInt8;
            options.parallel.secondary_partition = spread.nodes > 1;
          }
          return options;
        };
        const Trained cpu = train(settings({}), spread, kTrainedSteps);
        const Trained gpu = train(settings(kGpu), spread, kTrainedSteps);
        EXPECT_LT(gpu.losses.back(), gpu.losses.front());
        for (std::size_t i = 0; i < gpu.losses.size(); ++i) {
          EXPECT_NEAR(gpu.losses[i], cpu.losses[i],
                      precision == plan::Precision::kF32 ? 0.01 : 0.05)
              << "step " << i;
        }
        EXPECT_EQ(gpu.sent, cpu.sent);
        EXPECT_EQ(train(settings(kGpu), spread, kTrainedSteps), gpu);
      }
    }
  }
}

TEST_F(CudaZeroPlusPlus, SecondaryPartitionChangesNoBitOfWhatIsExact) {
  const Spread spread{4, 2};
  TrainOptions options = options_of(kGpu, 3, spread, plan::Precision::kBf16);
  options.parallel.secondary_partition = true;
  const Trained kept = train(options, spread, 4);
  options.parallel.quantized_gradients = Quantization::kNone;
  const Trained again = train(options, spread, 4);
  EXPECT_EQ(kept.losses, again.losses);
  const Trained cpu = train(
      [&] {
        TrainOptions there = options_of({}, 3, spread, plan::Precision::kBf16);
        there.parallel.secondary_partition = true;
        return there;
      }(),
      spread, 4);
  for (std::size_t i = 0; i < kept.losses.size(); ++i) {
    EXPECT_NEAR(kept.losses[i], cpu.losses[i], 0.02) << "step " << i;
  }
  EXPECT_EQ(kept.sent, cpu.sent);
}

}  // namespace
}  // namespace lockstep::train::cuda_zero_plus_plus_test
