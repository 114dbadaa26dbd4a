// Workers on emulated nodes that send each other quantised parameters and gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/math/half.h"
#include "lockstep/parallel/communication/machines.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/zero/exchange.h"
#include "lockstep/train/memory/run_plan.h"
#include "tests/train/run/thread_workers.h"

namespace lockstep::train::zero_plus_plus_test {
namespace {

using parallel::Quantization;
using ::testing::HasSubstr;
using Floats = std::vector<float>;

CommOptions on_hosts(int hosts) {
  CommOptions options;
  options.emulated_nodes = hosts;
  options.cache_dir.clear();
  return options;
}

struct Spread {
  int workers;
  int hosts;
};
constexpr Spread kSpreads[] = {{2, 1}, {2, 2}, {3, 1}, {3, 3}, {4, 1}, {4, 2},
                               {4, 4}, {5, 1}, {5, 5}, {6, 2}, {6, 3}};

TrainOptions options_of(int zero, const Spread& spread, plan::Precision precision) {
  TrainOptions options = tiny_options(precision);
  options.batch = {.sequence = 7, .sequences = 8, .micro = 1, .workers = spread.workers};
  options.parallel.zero = zero;
  options.parallel.machines = spread.hosts;
  options.threads = 1;
  return options;
}

TrainOptions quantised(TrainOptions options) {
  options.parallel.quantized_weights = Quantization::kInt8;
  options.parallel.quantized_gradients = Quantization::kInt4;
  options.parallel.secondary_partition = true;
  return options;
}

// What a payload says of a part, block by block, in the plainest way.
Floats quantised_plainly(std::span<const float> part, Quantization quantization) {
  constexpr std::size_t kBlock = 128;
  Floats out(part.begin(), part.end());
  if (quantization == Quantization::kNone) return out;
  const float most = quantization == Quantization::kInt8 ? 127.0f : 7.0f;
  for (std::size_t first = 0; first < out.size(); first += kBlock) {
    const std::span<float> block =
        std::span(out).subspan(first, std::min(kBlock, out.size() - first));
    float largest = 0;
    for (const float x : block) largest = std::max(largest, std::fabs(x));
    for (float& x : block)
      x = largest == 0 ? 0 : std::nearbyint(x * (most / largest)) * (largest / most);
  }
  return out;
}

Floats rounded(Floats values, DType dtype) {
  for (float& x : values) {
    if (dtype == DType::kBF16) x = to_float(to_bfloat16(x));
    if (dtype == DType::kF16) x = to_float(to_half(x));
  }
  return values;
}

// Small integers over a power of two: exact in every type, and their sums are.
Floats numbers(std::uint64_t seed, std::size_t elements) {
  Floats values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto word = static_cast<float>(random_word(seed, 5, i) % 127);
    values[i] = (word - 63.0f) / (i % 1000 < 500 ? 64.0f : 1024.0f);
  }
  return values;
}

// Memory for a buffer of a type.
class TypedBuffer {
 public:
  TypedBuffer(std::size_t elements, DType dtype)
      : bytes_(elements * size_of(dtype) + 64),
        tensor_(bytes_.data(), dtype, {static_cast<std::int64_t>(elements)}) {}
  TypedBuffer(const Floats& values, DType dtype) : TypedBuffer(values.size(), dtype) {
    parallel::narrow(values, parallel::data_of(tensor_));
  }
  const Tensor& tensor() const { return tensor_; }
  Floats floats() const {
    Floats values(tensor_.elements());
    parallel::widen(parallel::data_of(tensor_), values);
    return values;
  }

 private:
  std::vector<std::byte> bytes_;
  Tensor tensor_;
};

// Runs body(exchange, plan, worker) at every worker.
template <class Body>
void exchange(const TrainOptions& options, const Spread& spread, Body&& body) {
  run_threads(
      spread.workers,
      [&](Communicator& world) {
        const auto ops = make_cpu_ops(1);
        const nn::MemoryPlan plan = plan_run(options, *ops, world.rank());
        const auto made = parallel::make_exchange(world, options.parallel);
        made->start(plan);
        body(*made, plan, static_cast<std::size_t>(world.rank()));
      },
      on_hosts(spread.hosts));
}

TEST(ZeroPlusPlus, EverybodyGathersWhatThePlainQuantisationSays) {
  for (const Spread& spread : kSpreads) {
    for (const auto precision :
         {plan::Precision::kF32, plan::Precision::kBf16, plan::Precision::kF16}) {
      for (const Quantization quantization :
           {Quantization::kNone, Quantization::kInt8, Quantization::kInt4}) {
        TrainOptions options = options_of(3, spread, precision);
        options.parallel.quantized_weights = quantization;
        // Types are alike to nodes: each of them is tried on two.
        if (precision != plan::Precision::kBf16 && spread.workers != 4) continue;
        for (const bool secondary : {false, true}) {
          options.parallel.secondary_partition = secondary;
          exchange(options, spread,
                   [&](parallel::Exchange& way, const nn::MemoryPlan& plan, std::size_t worker) {
                     const auto workers = static_cast<std::size_t>(spread.workers);
                     for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
                       const std::size_t part = plan.flat.range(unit).elements / workers;
                       Floats expected;
                       for (std::size_t w = 0; w < workers; ++w) {
                         const Floats values = rounded(
                             quantised_plainly(numbers(w, part), quantization), plan.setup.dtype);
                         expected.insert(expected.end(), values.begin(), values.end());
                       }
                       const TypedBuffer mine(numbers(worker, part), plan.setup.dtype);
                       const TypedBuffer whole(part * workers, plan.setup.dtype);
                       for (int again = 0; again < 2; ++again) {
                         way.gather(unit, mine.tensor(), whole.tensor());
                         EXPECT_EQ(whole.floats(), expected)
                             << spread.workers << " on " << spread.hosts;
                       }
                     }
                   });
        }
      }
    }
  }
}

TEST(ZeroPlusPlus, AddsUpOnceWhatOtherMachinesHaveQuantised) {
  for (const Spread& spread : kSpreads) {
    for (const auto precision : {plan::Precision::kF32, plan::Precision::kBf16}) {
      for (const Quantization quantization :
           {Quantization::kNone, Quantization::kInt8, Quantization::kInt4}) {
        if (precision != plan::Precision::kBf16 && spread.workers != 4) continue;
        TrainOptions options = options_of(2, spread, precision);
        options.parallel.quantized_gradients = quantization;
        exchange(options, spread,
                 [&](parallel::Exchange& way, const nn::MemoryPlan& plan, std::size_t worker) {
                   const auto workers = static_cast<std::size_t>(spread.workers);
                   const std::size_t places = workers / static_cast<std::size_t>(spread.hosts);
                   for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
                     const std::size_t elements = plan.flat.range(unit).elements;
                     const std::size_t part = elements / workers;
                     Floats sums(part);
                     for (std::size_t machine = 0; machine < workers / places; ++machine) {
                       Floats of_machine(part);
                       for (std::size_t place = 0; place < places; ++place) {
                         const Floats gradients = numbers(machine * places + place, elements);
                         for (std::size_t i = 0; i < part; ++i)
                           of_machine[i] += gradients[worker * part + i];
                       }
                       of_machine = rounded(of_machine, plan.setup.gradient);
                       if (machine != worker / places)
                         of_machine = quantised_plainly(of_machine, quantization);
                       for (std::size_t i = 0; i < part; ++i) sums[i] += of_machine[i];
                     }
                     const TypedBuffer gradients(numbers(worker, elements), plan.setup.gradient);
                     const TypedBuffer mine(part, plan.setup.gradient);
                     way.add_up(unit, gradients.tensor(), mine.tensor());
                     EXPECT_EQ(mine.floats(), rounded(sums, plan.setup.gradient))
                         << spread.workers << " on " << spread.hosts;
                   }
                 });
      }
    }
  }
}

TEST(ZeroPlusPlus, KeepsInEveryMachineWhatCameAcrossUntilItChanges) {
  const Spread spread{4, 2};
  TrainOptions options = options_of(3, spread, plan::Precision::kBf16);
  options.parallel.secondary_partition = true;
  exchange(options, spread,
           [&](parallel::Exchange& way, const nn::MemoryPlan& plan, std::size_t worker) {
             const std::size_t part = plan.flat.range(0).elements / 4;
             const TypedBuffer whole(part * 4, plan.setup.dtype);
             const auto gather = [&](std::uint64_t seed) {
               const std::uint64_t before = way.bytes_across();
               way.gather(0, TypedBuffer(numbers(seed, part), plan.setup.dtype).tensor(),
                          whole.tensor());
               return way.bytes_across() - before;
             };
             EXPECT_EQ(gather(worker), 2 * part);
             const Floats first = whole.floats();
             EXPECT_EQ(gather(worker + 9), 0u);
             EXPECT_EQ(whole.floats(), first);
             way.forget();
             EXPECT_EQ(gather(worker + 9), 2 * part);
             EXPECT_NE(whole.floats(), first);
           });
}

struct Trained {
  Floats losses;
  std::uint64_t bytes_across = 0;  // of all workers, in the last step
  WholeStates states;
};

Trained train(const TrainOptions& options, const Spread& spread, int steps) {
  Trained result;
  std::mutex mutex;
  run_workers(
      options,
      [&](Trainer& trainer, Communicator*) {
        trainer.start();
        Floats losses;
        std::uint64_t bytes_across = 0;
        run_steps(trainer, steps, [&](const StepMetrics& metrics) {
          losses.push_back(static_cast<float>(metrics.loss));
          bytes_across = 0;
          for (const parallel::StepCost& cost : metrics.costs) bytes_across += cost.bytes_across;
        });
        const std::lock_guard lock(mutex);
        if (result.losses.empty()) result.losses = losses;
        EXPECT_EQ(losses, result.losses);
        result.bytes_across = bytes_across;
        take_states(trainer.replica(), result.states);
      },
      on_hosts(spread.hosts));
  return result;
}

TEST(ZeroPlusPlus, LearnsAsOneWorkerDoesAndTwiceTheSameBits) {
  constexpr int kSteps = 15;
  const Trained alone = train(options_of(0, {1, 1}, plan::Precision::kBf16), {1, 1}, kSteps);
  EXPECT_LT(alone.losses.back(), alone.losses.front() - 0.5f);
  for (const Spread& spread : {Spread{3, 3}, Spread{4, 2}}) {
    for (int stage = spread.workers == 4 ? 2 : 3; stage <= 3; ++stage) {
      TrainOptions options = options_of(stage, spread, plan::Precision::kBf16);
      options.parallel.quantized_gradients = Quantization::kInt4;
      if (stage == 3) options = quantised(options);
      const Trained one = train(options, spread, kSteps);
      EXPECT_NEAR(one.losses.back(), alone.losses.back(), 0.1) << stage;
      const Trained other = train(options, spread, kSteps);
      EXPECT_EQ(one.losses, other.losses);
      EXPECT_EQ(one.states, other.states);
    }
  }
}

// Infinities that a codec has read leave no trace in the padding of gradients.
TEST(ZeroPlusPlus, GoesOnAfterStepsWhoseGradientsOverflow) {
  const Spread spread{2, 2};
  for (int stage = 1; stage <= 3; ++stage) {
    TrainOptions options = options_of(stage, spread, plan::Precision::kF16);
    options.parallel.quantized_gradients = Quantization::kInt8;
    options.loss_scale.initial = 1 << 24;
    const Trained result = train(options, spread, 30);
    EXPECT_LT(result.losses.back(), result.losses.front() - 0.2f) << stage;
  }
}

TEST(ZeroPlusPlus, SecondaryPartitionAndMachinesChangeNoBitOfWhatIsExact) {
  const Spread spread{4, 2};
  for (const bool hold : {false, true}) {
    TrainOptions options = options_of(3, spread, plan::Precision::kF16);
    options.parallel.no_sync = hold;
    const Trained plain = train(options, spread, 5);
    options.parallel.secondary_partition = true;
    const Trained kept = train(options, spread, 5);
    EXPECT_EQ(kept.losses, plain.losses);
    EXPECT_EQ(kept.states, plain.states);
    EXPECT_LT(kept.bytes_across, plain.bytes_across);
    options.parallel.reduction = parallel::Reduction::kTree;
    options.precision = plan::Precision::kF32;
    const Trained tree = train(options, spread, 5);
    const Trained alone = train(
        [&] {
          TrainOptions one = options_of(0, {1, 1}, plan::Precision::kF32);
          one.parallel.reduction = parallel::Reduction::kTree;
          return one;
        }(),
        {1, 1}, 5);
    EXPECT_EQ(tree.losses, alone.losses);
    EXPECT_EQ(tree.states, alone.states);
  }
}

// The bytes of an int8 or int4 payload of this many elements.
std::uint64_t payload_bytes(std::uint64_t elements, Quantization quantization) {
  if (quantization == Quantization::kNone) return 2 * elements;
  const std::uint64_t rest = elements % 128;
  const std::uint64_t blocks = elements / 128;
  if (quantization == Quantization::kInt8) return blocks * 132 + (rest == 0 ? 0 : rest + 4);
  return blocks * 68 + (rest == 0 ? 0 : std::min<std::uint64_t>(rest, 64) + 4);
}

// Every worker sends its payload, or that of its sums, to as many as there are other nodes.
TEST(ZeroPlusPlus, SendsAcrossMachinesAQuarterOfWhatPlainZeroDoesToTheByte) {
  for (const Spread& spread : {Spread{4, 2}, Spread{4, 4}, Spread{6, 3}}) {
    TrainOptions options = options_of(3, spread, plan::Precision::kBf16);
    options.batch.sequences = 12;
    options.batch.micro = 12 / spread.workers;
    options.model.hidden = 96;
    options.model.layers = 3;
    const auto ops = make_cpu_ops(1);
    const nn::MemoryPlan plan = plan_run(options, *ops, 0);
    const auto copies = static_cast<std::uint64_t>(spread.workers * (spread.hosts - 1));
    const auto part = [&](std::size_t unit) {
      return plan.flat.range(unit).elements / static_cast<std::size_t>(spread.workers);
    };
    std::uint64_t plain = 0;
    for (const nn::Gather& gather : plan.gathers) plain += copies * 2 * part(gather.unit);
    std::uint64_t squeezed = 0;
    for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
      plain += copies * 2 * part(unit);
      squeezed += copies * (payload_bytes(part(unit), Quantization::kInt8) +
                            payload_bytes(part(unit), Quantization::kInt4));
    }
    EXPECT_EQ(train(options, spread, 1).bytes_across, plain);
    EXPECT_EQ(train(quantised(options), spread, 1).bytes_across, squeezed);
    EXPECT_LE(static_cast<double>(squeezed), 0.27 * static_cast<double>(plain));
  }
}

TEST(ZeroPlusPlus, SendsParametersAcrossOnceAStepHoweverManyMicroBatchesItHas) {
  const Spread spread{2, 2};
  TrainOptions options = quantised(options_of(3, spread, plan::Precision::kBf16));
  options.batch.micro = 4;
  const std::uint64_t one = train(options, spread, 2).bytes_across;
  options.parallel.no_sync = true;
  options.batch.micro = 1;
  EXPECT_EQ(train(options, spread, 2).bytes_across, one);
}

// A communicator that counts what it and those split from it allocate.
class AllocationCounter : public Communicator {
 public:
  AllocationCounter(Communicator& real, std::size_t& bytes) : real_(&real), bytes_(&bytes) {}
  AllocationCounter(std::unique_ptr<Communicator> real, std::size_t& bytes)
      : own_(std::move(real)), real_(own_.get()), bytes_(&bytes) {}

  int rank() const override { return real_->rank(); }
  int size() const override { return real_->size(); }
  std::string_view backend() const override { return real_->backend(); }
  std::vector<int> machines() const override { return real_->machines(); }
  std::uint64_t bytes_sent() const override { return real_->bytes_sent(); }
  void run(const Call& call) override { real_->run(call); }
  Work start(const Call& call) override { return real_->start(call); }
  void signal(int peer) override { real_->signal(peer); }
  void wait_signal(int peer) override { real_->wait_signal(peer); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return std::make_unique<AllocationCounter>(real_->split(color, key), *bytes_);
  }
  SymmetricBuffer allocate(std::size_t bytes) override {
    *bytes_ += bytes;
    return real_->allocate(bytes);
  }
  void abort(std::string_view reason) override { real_->abort(reason); }
  Choice choice(const Call& call) const override { return real_->choice(call); }

 private:
  std::unique_ptr<Communicator> own_;
  Communicator* real_;
  std::size_t* bytes_;
};

TEST(ZeroPlusPlus, TakesTheMemoryThatWasPlannedAndTellsTheSecondaryPartition) {
  for (const Spread& spread : {Spread{4, 2}, Spread{2, 2}, Spread{3, 1}}) {
    for (const bool plain : {true, false}) {
      TrainOptions options = options_of(3, spread, plan::Precision::kBf16);
      if (!plain) options = quantised(options);
      run_threads(
          spread.workers,
          [&](Communicator& world) {
            const auto ops = make_cpu_ops(1);
            const nn::MemoryPlan plan = plan_run(options, *ops, world.rank());
            std::size_t allocated = 0;
            AllocationCounter counter(world, allocated);
            const auto made = parallel::make_exchange(counter, options.parallel);
            made->start(plan);
            std::size_t planned = 0;
            std::size_t secondary = 0;
            for (const Request& request : plan.outside) {
              planned += request.bytes;
              if (request.group == parallel::kSecondaryGroup) secondary += request.bytes;
            }
            EXPECT_EQ(allocated, planned);
            const bool keeps = !plain && spread.hosts > 1;
            EXPECT_EQ(secondary > 0, keeps);
            const auto classes = plan.by_class();
            EXPECT_EQ(std::ranges::find(classes, "secondary", &GroupBytes::group) != classes.end(),
                      keeps);
          },
          on_hosts(spread.hosts));
    }
  }
}

std::string refused(const parallel::ParallelOptions& options, int workers) {
  try {
    parallel::check(options, workers);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(ZeroPlusPlus, IsRefusedWhereItDoesNotGoWithTheRest) {
  parallel::ParallelOptions options;
  options.zero = 2;
  options.quantized_gradients = Quantization::kInt4;
  EXPECT_NO_THROW(parallel::check(options, 4));
  options.zero = 0;
  EXPECT_THAT(refused(options, 4), HasSubstr("parallel.zero = 0"));
  options.zero = 2;
  options.quantized_weights = Quantization::kInt8;
  EXPECT_THAT(refused(options, 4),
              HasSubstr("parallel.quantized_weights = \"int8\" applies to sharded parameters"));
  options.zero = 3;
  EXPECT_NO_THROW(parallel::check(options, 4));
  options.machines = 2;
  EXPECT_NO_THROW(parallel::check(options, 4));
  EXPECT_THAT(refused(options, 3), HasSubstr("the same number of ranks on every node"));
  options.reduction = parallel::Reduction::kTree;
  EXPECT_THAT(refused(options, 4), HasSubstr("tree"));
  options.reduction = parallel::Reduction::kFast;
  options.partition = nn::Partition::kLayer;
  EXPECT_THAT(refused(options, 4), HasSubstr("layer"));
}

TEST(ZeroPlusPlus, UnevenMachinesShareOutExactlyOrNotAtAll) {
  const Spread spread{3, 2};
  TrainOptions options = options_of(3, spread, plan::Precision::kF32);
  const Trained alone = train(options_of(0, {1, 1}, plan::Precision::kF32), {1, 1}, 3);
  EXPECT_NEAR(train(options, spread, 3).losses.back(), alone.losses.back(), 1e-4);
  options.parallel.secondary_partition = true;
  EXPECT_THROW(train(options, spread, 1), Error);
}

TEST(Machines, AreAGridWhereEachHasAsManyWorkersOneAfterTheOther) {
  using parallel::machine_grid;
  const auto grid = machine_grid(std::vector<int>{7, 7, 2, 2, 5, 5});
  ASSERT_TRUE(grid);
  EXPECT_EQ(grid->machines, 3);
  EXPECT_EQ(grid->places, 2);
  EXPECT_EQ(grid->machine_of(3), 1);
  EXPECT_EQ(grid->place_of(3), 1);
  EXPECT_EQ(grid->worker_at(2, 1), 5);
  EXPECT_TRUE(machine_grid(std::vector<int>{0}));
  EXPECT_FALSE(machine_grid(std::vector<int>{0, 0, 1}));
  EXPECT_FALSE(machine_grid(std::vector<int>{0, 1, 0, 1}));
  EXPECT_FALSE(machine_grid(std::vector<int>{0, 1, 1, 0}));
}

}  // namespace
}  // namespace lockstep::train::zero_plus_plus_test
