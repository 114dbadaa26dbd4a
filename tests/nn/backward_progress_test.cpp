// What blocks say of the parameters that backward has finished with.
#include "lockstep/nn/replica/backward_progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/nn/blocks/embedding.h"
#include "lockstep/nn/blocks/language_head.h"
#include "tests/nn/quiet_blocks.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kHeadWeight = 2;  // behind the norm's gain and bias

constexpr Recompute kModes[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

// An exchange that acts on every call at once: it copies the gradients and overwrites the
// parameters with NaN. So a gradient that grows afterwards differs from its copy, and a computation
// that reads a parameter afterwards gives NaN.
class GreedyExchange : public BlockListener {
 public:
  explicit GreedyExchange(Replica& replica) : replica_(replica) {}

  void before_backward(std::size_t block) override {
    block_ = block;
    taken_ = replica_.flat().range(block).first;
    calls_ = 0;
  }
  void finished_up_to(std::size_t block, std::size_t end) override {
    EXPECT_EQ(block, block_);
    EXPECT_GT(end, taken_) << "nothing new in " << replica_.model().block(block).name();
    EXPECT_LE(end, replica_.flat().range(block).end());
    take({taken_, end - taken_});
    taken_ = end;
    ++calls_;
  }
  void after_backward(std::size_t block) override {
    const FlatRange range = replica_.flat().range(block);
    told_.push_back(taken_ - range.first);
    calls_of_.push_back(calls_);
    if (taken_ < range.end()) take({taken_, range.end() - taken_});
  }

  // After the last block: the parameters are there again.
  void compare_and_give_back() {
    replica_.ops().synchronize();
    std::size_t at = 0;
    for (const Taken& one : taken_of_) {
      EXPECT_EQ(one.range.first, at);
      at = one.range.end();
      const States now = replica_.states().slice(one.range);
      EXPECT_TRUE(bytes_of(now.gradients) == one.gradients)
          << "elements from " << one.range.first << " to " << one.range.end();
      std::memcpy(now.parameters.data(), one.parameters.data(), one.parameters.size());
    }
    EXPECT_EQ(at, replica_.flat().elements());
    taken_of_.clear();
  }

  // By block, the last first.
  const std::vector<std::size_t>& elements_told_of() const { return told_; }
  const std::vector<int>& calls() const { return calls_of_; }

 private:
  struct Taken {
    FlatRange range;
    std::vector<std::byte> gradients, parameters;
  };

  void take(FlatRange range) {
    replica_.ops().synchronize();
    const States states = replica_.states().slice(range);
    taken_of_.push_back({range, bytes_of(states.gradients), bytes_of(states.parameters)});
    std::memset(states.parameters.data(), 0xff, states.parameters.bytes());  // NaN in every type
  }

  Replica& replica_;
  std::size_t block_ = 0;
  std::size_t taken_ = 0;
  int calls_ = 0;
  std::vector<Taken> taken_of_;
  std::vector<std::size_t> told_;
  std::vector<int> calls_of_;
};

// Two micro-batches, the second with an exchange.
std::vector<std::byte> gradients_of(Replica& replica, const BatchShape& shape,
                                    GreedyExchange* exchange) {
  replica.initialise(7);
  shake(replica, 0.1f);
  replica.ops().synchronize();
  TinyBatch first(shape, 1);
  TinyBatch second(shape, 2);
  replica.forward_backward(first.batch(), {.step = 1});
  replica.set_listener(exchange);
  replica.forward_backward(second.batch(), {.step = 1, .first_sequence = 2});
  replica.set_listener(nullptr);
  replica.ops().synchronize();
  if (exchange != nullptr) exchange->compare_and_give_back();
  return bytes_of(replica.states().gradients);
}

TEST(BackwardProgress, OfEveryModelIsWholeAndNothingIsWrittenOrReadAfterwards) {
  for (const std::string& implementation : all_ops()) {
    for (const Tiny tiny : kAllTiny) {
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        for (const Recompute recompute : kModes) {
          SCOPED_TRACE(fmt::format("{} {} {} {}", implementation, name(tiny), name(dtype),
                                   static_cast<int>(recompute)));
          const auto ops = make_ops(implementation);
          const nn::Setup setup = tiny_setup(tiny, dtype, recompute);
          Replica replica = make_replica(make_tiny(tiny, 0.1), setup, *ops);
          const std::vector<std::byte> expected = gradients_of(replica, setup.shape, nullptr);
          GreedyExchange exchange(replica);
          EXPECT_TRUE(gradients_of(replica, setup.shape, &exchange) == expected);
          // Ours say all of it.
          std::vector<std::size_t> all;
          for (std::size_t block = replica.model().size(); block-- > 0;) {
            all.push_back(replica.flat().range(block).elements);
          }
          EXPECT_EQ(exchange.elements_told_of(), all);
        }
      }
    }
  }
}

// Keeps a copy of what was added to.
class AddedParts : public BlockListener {
 public:
  explicit AddedParts(Replica& replica) : replica_(replica) {}

  void accumulated(std::size_t block, const FlatRange& range) override {
    EXPECT_EQ(block, replica_.model().size() - 1);
    replica_.ops().synchronize();
    if (!ranges.empty()) {
      EXPECT_EQ(range.first, ranges.back().first);
      EXPECT_GT(range.elements, ranges.back().elements);
    }
    ranges.push_back(range);
    copies_.push_back(bytes_of(replica_.states().slice(range).gradients));
  }
  void after_backward(std::size_t block) override {
    if (block + 1 != replica_.model().size()) return;
    replica_.ops().synchronize();
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      EXPECT_TRUE(bytes_of(replica_.states().slice(ranges[i]).gradients) == copies_[i]) << i;
    }
  }

  std::vector<FlatRange> ranges;

 private:
  Replica& replica_;
  std::vector<std::vector<std::byte>> copies_;
};

// Of a head of its own, of one that is tied, and of one with a bias.
TEST(BackwardProgress, OfLogitsComesInPartsOfTheirWeight) {
  constexpr std::int64_t kWide = 9001;
  for (const auto& [tiny, weight] :
       {std::pair(Tiny::kGpt2, "embedding.tokens"), std::pair(Tiny::kLlama, "head.logits.weight"),
        std::pair(Tiny::kBert, "embedding.tokens")}) {
    SCOPED_TRACE(name(tiny));
    const auto ops = make_cpu_ops(2);
    Replica replica = make_replica(make_tiny(tiny, 0, kWide), tiny_setup(tiny), *ops);
    AddedParts parts(replica);
    replica.set_listener(&parts);
    TinyBatch batch(tiny_batch_shape(tiny), 1, kWide);
    replica.initialise(1);
    replica.forward_backward(batch.batch());
    const FlatParameter& all = replica.flat().find(weight);
    const auto width = static_cast<std::size_t>(all.shape[1]);
    ASSERT_EQ(parts.ranges.size(), 3u);  // of 3008, 3008 and 2985 classes
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(parts.ranges[i].first, all.offset);
      EXPECT_EQ(parts.ranges[i].elements, std::min<std::size_t>(3008 * (i + 1), kWide) * width);
    }
  }
}

// What a chunk adds before the last is not complete.
TEST(BackwardProgress, OfLogitsComesWithTheLastChunkAlone) {
  constexpr std::int64_t kWide = 9001;
  const auto ops = make_cpu_ops(2);
  nn::Setup setup;
  setup.shape = {.batch = 13, .sequence = 10, .source_sequence = 0};
  std::vector<std::unique_ptr<Block>> blocks;
  blocks.push_back(std::make_unique<Embedding>(
      "embedding", EmbeddingOptions{.vocabulary = kWide, .positions = 10, .hidden = 8}));
  blocks.push_back(std::make_unique<LanguageHead>(
      "head", NormOptions{.width = 8},
      ClassifierOptions{.hidden = 8, .classes = kWide, .bias = true, .chunk_bytes = 1}));
  Replica replica = make_replica(Model("chunks", std::move(blocks)), setup, *ops);
  EXPECT_EQ(rows_per_chunk(130, kWide, DType::kF32, 1), 48);
  AddedParts parts(replica);
  replica.set_listener(&parts);
  TinyBatch batch(setup.shape, 1, kWide);
  replica.initialise(1);
  replica.forward_backward(batch.batch());
  EXPECT_EQ(parts.ranges.size(), 3u);
}

TEST(BackwardProgress, RefusesRowsThatDoNotGrowOrAreNotThere) {
  const auto ops = make_reference_ops();
  const auto refusal = [&](std::initializer_list<std::int64_t> rows) -> std::string {
    Replica replica = make_replica(changed(make_tiny(Tiny::kGpt2),
                                           [&](Block& block, const Pass& pass) {
                                             block.backward(quiet(pass));
                                             if (block.name() != "head") return;
                                             for (const std::int64_t some : rows)
                                               pass.accumulated(kHeadWeight, some);
                                           }),
                                   tiny_setup(Tiny::kGpt2), *ops);
    replica.initialise(1);
    BlockListener listener;
    replica.set_listener(&listener);
    TinyBatch batch(tiny_batch_shape(Tiny::kGpt2));
    try {
      replica.forward_backward(batch.batch());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "was not refused";
  };
  EXPECT_EQ(refusal({1, 5, kVocabulary}), "was not refused");
  EXPECT_THAT(refusal({5, 5}), HasSubstr("'embedding.tokens', after 5 of 37"));
  EXPECT_THAT(refusal({kVocabulary + 1}), HasSubstr("38 rows"));
  EXPECT_THAT(refusal({0}), HasSubstr("0 rows"));
}

TEST(BackwardProgress, OfALayerComesInPartsFromTheMlpOn) {
  const auto ops = make_reference_ops();
  for (const Tiny tiny : {Tiny::kGpt2, Tiny::kLlama, Tiny::kBert}) {
    SCOPED_TRACE(name(tiny));
    Replica replica = make_replica(make_tiny(tiny), tiny_setup(tiny), *ops);
    class Names : public BlockListener {
     public:
      explicit Names(const FlatParameters& flat)
          : flat_(flat), layer_(flat.find("layer.0.mlp.down.weight").block) {}
      void finished_up_to(std::size_t block, std::size_t end) override {
        if (block != layer_) return;
        std::string last;
        for (const FlatParameter& one : flat_.of(block)) {
          if (one.offset < end) last = one.name;
        }
        lasts.push_back(last);
      }
      std::vector<std::string> lasts;

     private:
      const FlatParameters& flat_;
      std::size_t layer_;
    } names(replica.flat());
    replica.set_listener(&names);
    TinyBatch batch(tiny_batch_shape(tiny));
    replica.initialise(1);
    replica.forward_backward(batch.batch());
    const std::string up = tiny == Tiny::kLlama ? "gate_up" : "up";
    ASSERT_GE(names.lasts.size(), 4u);
    names.lasts.resize(3);
    EXPECT_THAT(names.lasts, ElementsAre("layer.0.mlp.down.weight", "layer.0.mlp." + up + ".weight",
                                         "layer.0.attention.projection.weight"));
  }
}

TEST(BackwardProgress, OfQuietBlocksIsTheirEnd) {
  const auto ops = make_cpu_ops(1);
  const nn::Setup setup = tiny_setup(Tiny::kGpt2);
  Replica loud = make_replica(make_tiny(Tiny::kGpt2), setup, *ops);
  Replica replica = make_replica(quiet(make_tiny(Tiny::kGpt2)), setup, *ops);
  GreedyExchange exchange(replica);
  EXPECT_TRUE(gradients_of(replica, setup.shape, &exchange) ==
              gradients_of(loud, setup.shape, nullptr));
  EXPECT_THAT(exchange.calls(), ElementsAre(0, 0, 0, 0));
}

TEST(BackwardProgress, WaitsForNeighboursInTheRowInWhateverOrderABlockSpeaks) {
  const auto ops = make_cpu_ops(1);
  const nn::Setup setup = tiny_setup(Tiny::kGpt2);
  for (const bool upwards : {true, false}) {
    // All at the end; in the row the last declared is first.
    Replica replica = make_replica(changed(make_tiny(Tiny::kGpt2),
                                           [upwards](Block& block, const Pass& pass) {
                                             block.backward(quiet(pass));
                                             const std::size_t count = pass.parameters.size();
                                             for (std::size_t i = 0; i < count; ++i) {
                                               pass.finished(upwards ? i : count - 1 - i);
                                             }
                                           }),
                                   setup, *ops);
    GreedyExchange exchange(replica);
    gradients_of(replica, setup.shape, &exchange);
    // Upwards a layer's first in the row, the weight of mlp.down, is the last but one: one call for
    // all weights, one with the bias behind it. Downwards four for the weights, the last with all
    // biases but those of the first norm, and these.
    if (upwards) {
      EXPECT_THAT(exchange.calls(), ElementsAre(1, 2, 2, 1));
    } else {
      EXPECT_THAT(exchange.calls(), ElementsAre(2, 6, 6, 2));
    }
  }
}

TEST(BackwardProgress, RefusesToHearOfAParameterTwice) {
  const auto ops = make_reference_ops();
  Replica replica = make_replica(changed(make_tiny(Tiny::kGpt2),
                                         [](Block& block, const Pass& pass) {
                                           block.backward(pass);
                                           pass.finished(0);
                                         }),
                                 tiny_setup(Tiny::kGpt2), *ops);
  replica.initialise(1);
  TinyBatch batch(tiny_batch_shape(Tiny::kGpt2));
  replica.forward_backward(batch.batch());  // without a listener
  BlockListener listener;
  replica.set_listener(&listener);
  try {
    replica.forward_backward(batch.batch());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("twice"));
    EXPECT_THAT(error.what(), HasSubstr("head.norm.gain"));
  }
}

}  // namespace
}  // namespace lockstep::nn
