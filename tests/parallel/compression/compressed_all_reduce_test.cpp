// The compressed all-reduce on ranks that are threads, against one rank after another in one
// thread.
#include "lockstep/parallel/compression/compressed_all_reduce.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/compression/sparse.h"
#include "tests/parallel/compression/counting_communicator.h"
#include "tests/parallel/compression/gradients.h"

namespace lockstep::parallel {
namespace {

using testing::all_finite;
using testing::CountingCommunicator;
using testing::decoded;
using testing::encoded;
using testing::make_gradients;

constexpr int kSteps = 3;
constexpr OwnMomentum kMomentum{.keep = 0.5f, .take = 0.5f};
constexpr double kClip = 0.05;  // less than the norm of many gradients here, more than of few

// A bucket in memory of exactly the sizes that it asks for.
class Bucket {
 public:
  Bucket(Communicator& communicator, const CompressionOptions& options, std::size_t elements,
         DType dtype = DType::kF32)
      : memory_(CompressedAllReduce::memory(elements, dtype, communicator.size(), options)),
        residual_(memory_.residual_elements, 99.0f),
        staging_(memory_.staging_bytes),
        all_reduce_(communicator, options, elements, dtype, residual_, staging_) {}

  CompressedAllReduce* operator->() { return &all_reduce_; }

 private:
  CompressedAllReduce::Memory memory_;
  std::vector<float> residual_;
  std::vector<std::byte> staging_;
  CompressedAllReduce all_reduce_;
};

std::vector<float> gradients_of(int rank, int step, std::size_t elements) {
  return make_gradients(elements, static_cast<std::uint64_t>(1000 * step + rank));
}

// What the words at the top of the header say, for one step after another.
class Model {
 public:
  Model(const CompressionOptions& options, std::size_t ranks, std::size_t elements)
      : codec_(make_codec(options)),
        codec_of_sums_(make_codec(options_of_sums(options, ranks))),
        ranks_(ranks),
        one_stage_(options.compression == Compression::kTopk && ranks <= 4),
        shards_{elements, one_stage_ ? 1 : ranks},
        feeds_back_(codec_->needs_residual()),
        momentum_(takes_own_momentum(options.compression) ? kMomentum : OwnMomentum{}),
        residuals_(ranks, std::vector<float>(elements, 0.0f)),
        velocities_(residuals_),
        clips_(ranks),
        sum_residual_(elements, 0.0f) {}

  std::vector<float> step(const std::vector<std::vector<float>>& gradients, std::uint64_t seed) {
    std::vector<float> result;
    for (OwnClip& clip : clips_) {
      clip.begin_step(momentum_.keep == 0 ? 0 : kClip, static_cast<int>(ranks_));
    }
    for (std::size_t s = 0; s < shards_.ranks; ++s) {
      const std::size_t begin = shards_.begin(s);
      const std::size_t size = shards_.size(s);
      const auto part = [&](std::vector<float>& values) {
        return std::span(values).subspan(begin, feeds_back_ ? size : 0);
      };
      std::vector<float> sums(size, 0.0f);
      for (std::size_t r = 0; r < ranks_; ++r) {
        const auto velocity = std::span(velocities_[r]).subspan(begin, size);
        const float take =
            momentum_.take * clips_[r].factor(std::span(gradients[r]).subspan(begin, size));
        for (std::size_t i = 0; i < size; ++i) {
          const volatile float taken = take * gradients[r][begin + i];  // not fused with the sum
          velocity[i] = momentum_.keep * velocity[i] + taken;
        }
        const auto payload = encoded(*codec_, velocity, part(residuals_[r]), seed);
        const auto sent = decoded(*codec_, payload, size, seed);
        for (std::size_t i = 0; i < size; ++i) {
          if (sent[i] != 0) velocity[i] = 0;
        }
        if (r == 0) sums = decoded(*codec_, payload, size, seed);
        if (r > 0) codec_->decode_add(payload, sums, seed);
      }
      if (one_stage_) return sums;
      const auto payload = encoded(*codec_of_sums_, sums, part(sum_residual_), seed);
      const auto shard = decoded(*codec_of_sums_, payload, size, seed);
      result.insert(result.end(), shard.begin(), shard.end());
    }
    return result;
  }

 private:
  std::unique_ptr<Codec> codec_;
  std::unique_ptr<Codec> codec_of_sums_;
  std::size_t ranks_;
  bool one_stage_;  // a payload of the whole bucket from every rank to every other
  BucketShards shards_;
  bool feeds_back_;
  OwnMomentum momentum_;
  std::vector<std::vector<float>> residuals_;   // by rank
  std::vector<std::vector<float>> velocities_;  // by rank
  std::vector<OwnClip> clips_;                  // by rank
  std::vector<float> sum_residual_;
};

// The results of `ranks` ranks: by rank, then by step.
using Results = std::vector<std::vector<std::vector<float>>>;

// Gradients are rounded to `dtype` on their way in, and so are the results.
Results results_of(int ranks, const CompressionOptions& options, std::size_t elements,
                   DType dtype = DType::kF32) {
  Results results(static_cast<std::size_t>(ranks));
  run_threads(ranks, [&](Communicator& communicator) {
    Bucket bucket(communicator, options, elements, dtype);
    OwnClip clip;
    OwnMomentum momentum = kMomentum;
    momentum.clip = &clip;
    bucket->set_momentum(momentum);
    std::vector<std::byte> memory(elements * size_of(dtype));
    const Data data(memory.data(), elements, dtype);
    for (int step = 0; step < kSteps; ++step) {
      narrow(gradients_of(communicator.rank(), step, elements), data);
      clip.begin_step(kClip, ranks);
      bucket->run(data, static_cast<std::uint64_t>(step));
      std::vector<float> result(elements);
      widen(data, result);
      results[static_cast<std::size_t>(communicator.rank())].push_back(std::move(result));
    }
  });
  return results;
}

std::vector<float> rounded_to(DType dtype, std::vector<float> values) {
  std::vector<std::byte> memory(values.size() * size_of(dtype));
  narrow(values, {memory.data(), values.size(), dtype});
  widen({memory.data(), values.size(), dtype}, values);
  return values;
}

class EveryAllReduce : public ::testing::TestWithParam<Compression> {
 protected:
  CompressionOptions options_{.compression = GetParam(), .ratio = 0.05};
  // Those two are one all-reduce, in which sums are rounded but once.
  bool has_stages() const {
    return GetParam() != Compression::kNone && GetParam() != Compression::kBf16;
  }
  std::vector<float> plain_sum(int ranks, int step, std::size_t elements, DType dtype) const {
    const DType wire = GetParam() == Compression::kBf16 ? DType::kBF16 : dtype;
    std::vector<float> sums(elements, 0.0f);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto values = rounded_to(wire, rounded_to(dtype, gradients_of(rank, step, elements)));
      for (std::size_t i = 0; i < elements; ++i) sums[i] += values[i];
    }
    return rounded_to(dtype, rounded_to(wire, sums));
  }

  void expect_model(int ranks, std::size_t elements, DType dtype) {
    const Results results = results_of(ranks, options_, elements, dtype);
    Model model(options_, static_cast<std::size_t>(ranks), elements);
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::vector<float>> gradients;
      for (int rank = 0; rank < ranks; ++rank) {
        gradients.push_back(rounded_to(dtype, gradients_of(rank, step, elements)));
      }
      const std::vector<float> expected =
          ranks == 1 ? gradients[0]
          : has_stages()
              ? rounded_to(dtype, model.step(gradients, static_cast<std::uint64_t>(step)))
              : plain_sum(ranks, step, elements, dtype);
      for (const auto& of_rank : results) {
        ASSERT_EQ(of_rank[static_cast<std::size_t>(step)], expected)
            << ranks << " ranks, " << elements << " elements, step " << step;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Compression, EveryAllReduce, ::testing::ValuesIn(kAllCompressions),
                         [](const auto& instance) { return std::string(name(instance.param)); });

TEST_P(EveryAllReduce, GivesEveryRankWhatTheModelSays) {
  for (int ranks = 1; ranks <= 6; ++ranks) {
    for (const std::size_t elements : {0, 1, 3, 17, 257, 3001}) {
      expect_model(ranks, elements, DType::kF32);
    }
  }
}

TEST_P(EveryAllReduce, TakesGradientsOf16Bits) {
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int ranks : {1, 2, 3, 5}) expect_model(ranks, 1023, dtype);
  }
}

TEST_P(EveryAllReduce, ShowsANanOfOneRankToAll) {
  for (const int ranks : {3, 5}) {
    run_threads(ranks, [&](Communicator& communicator) {
      Bucket bucket(communicator, options_, 1000);
      for (std::uint64_t step = 0; step < 3; ++step) {
        auto gradients = gradients_of(communicator.rank(), 0, 1000);
        if (step == 1 && communicator.rank() == 1) {
          gradients[500] = std::numeric_limits<float>::infinity();
          gradients[2] = std::numeric_limits<float>::quiet_NaN();
        }
        bucket->run(gradients, step);
        EXPECT_EQ(all_finite(gradients), step != 1) << "step " << step;
      }
    });
  }
}

TEST_P(EveryAllReduce, TellsTheBytesThatItSent) {
  for (const int ranks : {4, 5}) {
    run_threads(ranks, [&](Communicator& communicator) {
      CountingCommunicator counting(communicator);
      Bucket bucket(counting, options_, 4000);
      auto gradients = gradients_of(communicator.rank(), 0, 4000);
      const std::uint64_t told = bucket->run(gradients, 0);
      EXPECT_EQ(told, counting.bytes());
      EXPECT_GT(counting.bytes(), 0u);
    });
  }
}

TEST_P(EveryAllReduce, SumsGradientsOverTime) {
  constexpr int kManySteps = 500;
  constexpr std::size_t kElements = 500;
  run_threads(2, [&](Communicator& communicator) {
    CompressionOptions options = options_;
    options.ratio = 0.2;
    Bucket bucket(communicator, options, kElements);
    const auto first = gradients_of(0, 0, kElements);
    const auto second = gradients_of(1, 0, kElements);
    std::vector<double> sums(kElements, 0.0);
    for (int step = 0; step < kManySteps; ++step) {
      auto gradients = communicator.rank() == 0 ? first : second;
      bucket->run(gradients, static_cast<std::uint64_t>(step));
      for (std::size_t i = 0; i < kElements; ++i) sums[i] += static_cast<double>(gradients[i]);
    }
    double error = 0;
    double size = 0;
    for (std::size_t i = 0; i < kElements; ++i) {
      const double expected = static_cast<double>(first[i]) + static_cast<double>(second[i]);
      error += std::pow(sums[i] / kManySteps - expected, 2);
      size += expected * expected;
    }
    EXPECT_LT(std::sqrt(error / size), 0.04) << "what is still to be sent is a few steps' worth";
  });
}

TEST_P(EveryAllReduce, RefusesMemoryAndGradientsThatDoNotFit) {
  run_threads(2, [&](Communicator& communicator) {
    const auto memory = CompressedAllReduce::memory(1000, DType::kF32, 2, options_);
    std::vector<float> residual(memory.residual_elements);
    std::vector<float> too_long(memory.residual_elements + 1);
    std::vector<std::byte> staging(memory.staging_bytes);
    const auto make = [&](std::span<float> r, std::span<std::byte> s) {
      return CompressedAllReduce(communicator, options_, 1000, DType::kF32, r, s);
    };
    EXPECT_THROW(make(too_long, staging), Error);
    if (!staging.empty()) {
      EXPECT_THROW(make(residual, std::span(staging).subspan(4)), Error);
    }
    auto all_reduce = make(residual, staging);
    std::vector<float> others(999);
    EXPECT_THROW(all_reduce.run(others, 0), Error);
    EXPECT_THROW(all_reduce.run(std::span<BFloat16>(), 0), Error);
    EXPECT_THROW(CompressedAllReduce::memory(1000, DType::kI32, 2, options_), Error);
  });
}

TEST(OwnClip, GoesByTheNormOfAllThatAStepHasShown) {
  for (const std::size_t elements : {1, 15, 16, 17, 4099}) {
    const auto first = make_gradients(elements, 1);
    const auto second = make_gradients(elements, 2);
    double squares = 0;
    for (const float x : first) squares += static_cast<double>(x) * static_cast<double>(x);
    const double norm = std::sqrt(squares);
    for (const float x : second) squares += static_cast<double>(x) * static_cast<double>(x);
    OwnClip clip;
    EXPECT_EQ(clip.factor(first), 1) << "no step has said what to clip to";
    for (int step = 0; step < 2; ++step) {
      clip.begin_step(norm, 4);  // of which each worker has a half
      EXPECT_NEAR(clip.factor(first), 0.5, 1e-6);
      EXPECT_NEAR(clip.factor(second), 0.5 * norm / std::sqrt(squares), 1e-6);
    }
    clip.begin_step(4 * norm, 4);
    EXPECT_EQ(clip.factor(first), 1);
    clip.begin_step(0, 4);
    EXPECT_EQ(clip.factor(first), 1);
  }
}

TEST(OwnClip, LetsWhatIsNotFiniteBeSeen) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    OwnClip clip;
    clip.begin_step(1e-6, 2);
    EXPECT_EQ(clip.factor(std::vector<float>{1, bad, 2}), 1);
    EXPECT_EQ(clip.factor(std::vector<float>{1, 2}), 1);
  }
}

TEST(CompressedAllReduce, LeavesTheGradientsOfOneRankAsTheyAre) {
  for (const Compression compression : kAllCompressions) {
    const CompressionOptions options{.compression = compression};
    EXPECT_EQ(CompressedAllReduce::memory(1000, DType::kF32, 1, options).bytes(), 0u);
    run_threads(1, [&](Communicator& communicator) {
      Bucket bucket(communicator, options, 1000);
      auto gradients = make_gradients(1000, 1);
      EXPECT_EQ(bucket->run(gradients, 0), 0u);
      EXPECT_EQ(gradients, make_gradients(1000, 1));
    });
  }
}

// Of the bytes of a ring of floats, 2 S (N - 1) / N, for any N.
TEST(CompressedAllReduce, SendsTheShareOfBytesThatIsPromised) {
  constexpr std::size_t kElements = 100'003;
  const std::pair<Compression, double> promises[] = {
      {Compression::kBf16, 0.501},   {Compression::kF16, 0.51},     {Compression::kInt8, 0.27},
      {Compression::kInt4, 0.14},    {Compression::kOnebit, 0.042}, {Compression::kTopk, 0.03},
      {Compression::kRandomk, 0.011}};
  const auto all_gradients = gradients_of(0, 0, kElements);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const double ring = 2.0 * 4.0 * kElements * (ranks - 1) / ranks;
    run_threads(ranks, [&](Communicator& communicator) {
      for (const auto& [compression, share] : promises) {
        Bucket bucket(communicator, {.compression = compression}, kElements);
        auto gradients = all_gradients;
        const auto bytes = static_cast<double>(bucket->run(gradients, 0));
        EXPECT_LE(bytes, share * ring) << name(compression) << ", " << ranks << " ranks";
        EXPECT_GE(bytes, 0.3 * share * ring) << name(compression) << ", " << ranks << " ranks";
      }
    });
  }
}

TEST(CompressedAllReduce, ScalesWhatItHasNotSentYet) {
  for (const int ranks : {2, 5}) {
    run_threads(ranks, [&](Communicator& communicator) {
      Bucket bucket(communicator, {.compression = Compression::kTopk}, 1000);
      auto gradients = gradients_of(communicator.rank(), 0, 1000);
      bucket->run(gradients, 0);
      const auto all = [&] {
        std::vector<float> values;
        for (const auto row :
             {bucket->residual(), bucket->velocity(), bucket->residual_of_sums()}) {
          values.insert(values.end(), row.begin(), row.end());
        }
        return values;
      };
      const std::vector<float> before = all();
      EXPECT_EQ(before.size(), 1000u + 1000u + (ranks == 2 ? 0u : 200u));
      bucket->scale_residual(0.5f);
      const std::vector<float> after = all();
      for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], 0.5f * before[i]);
      EXPECT_THROW(bucket->scale_residual(std::numeric_limits<float>::infinity()), Error);
    });
  }
}

}  // namespace
}  // namespace lockstep::parallel
