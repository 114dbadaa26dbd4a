// A model that continues a text: it reads tokens and says what may come next.
//
//   Weights weights(model, DType::kBF16, ops);
//   Decoder decoder(model, weights.flat(), weights.buffer(), {.positions = 1024}, ops);
//   Tensor logits = decoder.prefill(prompt);
//   logits = decoder.step(chosen);
//
// It may hold several sequences, each with a cache of its own. They are read one by one in pieces,
// and all together in steps of one token each: queue_step() takes the tokens from memory of the
// device and leaves logits there, so that steps can be queued without the host seeing any of them
// (nn/generate/continuation.h). Where the device can capture operations, a step is captured once
// and then launched as a whole.
//
// Keys and values of what was read stay in a cache, so a step costs one pass over the parameters,
// however long the text. A prompt is read in pieces of many rows, which cost little more than one:
// of the most that a power of two allows, so that there are few shapes to make kernels and memory
// for. Of its logits only the last row is computed.
//
// It takes DecoderPlan::bytes() once, at construction; the parameters are the caller's and are read
// where they lie, so a decoder over a replica sees each step of training. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/model.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/ops/sampler.h"
#include "lockstep/tensor/arena.h"

namespace lockstep::nn {

struct DecoderOptions {
  std::int64_t positions = 0;  // that the cache has room for: prompt and continuation together
  std::int64_t rows = 256;     // of a prompt that are read at once, at most; rounded down to 2^n
  std::int64_t batch = 1;      // sequences
};

// How tokens are chosen on the device (ops::Sample).
struct StepChoice {
  ops::ChoiceOptions options;
  std::int64_t choices = 0;  // tokens are chosen from the first `choices` classes

  friend bool operator==(const StepChoice&, const StepChoice&) = default;
};

// Where everything lies that a decoder has of its own.
struct DecoderPlan {
  static constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);
  struct BlockPlaces {
    std::vector<std::size_t> cache;
    std::vector<std::size_t> tensors;
    std::size_t scratch = kAbsent;
    std::size_t output = kAbsent;
  };
  DecodeSetup setup;  // with the most rows
  std::int64_t classes = 0;
  std::vector<Request> requests;  // groups: "cache", "workspace"
  Layout layout;
  std::vector<BlockPlaces> blocks;
  std::size_t tokens = kAbsent;
  std::size_t logits = kAbsent;  // [batch, classes]
  std::size_t wide_logits = kAbsent;
  std::size_t step_tokens = kAbsent;  // i32 [batch], and so are the next two
  std::size_t lengths = kAbsent;
  std::size_t text_positions = kAbsent;
  std::size_t seeds = kAbsent;  // i64 [batch]

  std::size_t bytes() const { return layout.bytes; }
  std::size_t cache_bytes() const;
};

// Throws Error(kUnsupported) that names the block which cannot decode, and Error(kInvalidArgument)
// where the model has not as many positions.
DecoderPlan plan_decoder(const Model& model, DType dtype, const DecoderOptions& options,
                         const Ops& ops);

class Decoder {
 public:
  // `model`, `parameters` (a flat buffer of `flat`, of the compute type) and `ops` outlive the
  // decoder.
  Decoder(const Model& model, const FlatParameters& flat, const Tensor& parameters,
          const DecoderOptions& options, Ops& ops);
  // Over the parameters of a replica, without copying them. Where these are gathered, from other
  // workers or another tier, each pass over the model is one forward of the replica to its
  // listener; `before_pass` is called before each, so that the others can take part.
  Decoder(const Replica& replica, const DecoderOptions& options,
          std::function<void()> before_pass = {});

  std::int64_t positions() const { return plan_.setup.positions; }
  std::int64_t batch() const { return plan_.setup.batch; }
  // How many tokens of a sequence were read.
  std::int64_t position(std::int64_t sequence = 0) const { return positions_.at(index(sequence)); }
  std::int64_t classes() const { return plan_.classes; }
  const DecoderPlan& plan() const { return plan_; }
  Ops& ops() const { return ops_; }

  // Reads tokens of a sequence behind those that were read. Returns the logits of what follows the
  // last, f32 [classes], on the device; they hold until the next call. Throws
  // Error(kInvalidArgument) for no token, for one that is outside the vocabulary, and for more than
  // there is room for; what was read before stays.
  Tensor prefill(std::span<const std::int32_t> tokens, std::int64_t sequence = 0);
  Tensor step(std::int32_t token) { return prefill({&token, 1}); }

  // Forgets all but the first `position` tokens of a sequence.
  void rewind(std::int64_t position, std::int64_t sequence = 0);

  // Memory of the device that steps work with, one element or row for each sequence.
  struct StepMemory {
    Tensor tokens;          // i32: what the next step reads
    Tensor lengths;         // i32: how many tokens came before; rises with ops::Sample
    Tensor text_positions;  // i32, for whoever chooses tokens
    Tensor seeds;           // i64, for the same
    Tensor logits;          // [batch, classes] of the compute type: what prefill and steps leave
  };
  const StepMemory& step_memory() const { return step_; }
  // Queues the choice of the token behind what was read of a sequence: from its logits into
  // step_memory().tokens.
  void queue_choice(const StepChoice& choice, std::int64_t sequence);
  // Queues the reading of step_memory().tokens at lengths, and the choice of all next tokens. The
  // caller sees to it that no sequence that counts is full, and that lengths are those of
  // position() before the first step; a full one that does not count reads and writes its last
  // position.
  void queue_step(const StepChoice& choice);

 private:
  struct BlockViews {
    std::vector<Tensor> parameters;
    std::vector<Tensor> cache;
    std::vector<Tensor> tensors;
    Tensor scratch;
    Tensor output;
  };

  Decoder(const Model& model, DType dtype, const DecoderOptions& options, Ops& ops);
  std::size_t index(std::int64_t sequence) const;
  // Views for a piece of so many rows of a sequence, or for a step.
  void make_views(const DecodeSetup& setup, std::int64_t sequence);
  void read(std::span<const std::int32_t> tokens, std::int64_t sequence);
  // Of `count` sequences from the first on. Lengths rise only where a step has read the tokens.
  void run_choice(const StepChoice& choice, std::int64_t first, std::int64_t count,
                  bool raises_lengths);
  void pass_over_blocks(const Tensor& tokens, std::int64_t position, const Tensor& lengths,
                        const Tensor& logits);

  const Model& model_;
  Ops& ops_;
  DecoderPlan plan_;
  Arena arena_;
  std::vector<BlockViews> views_;
  bool has_views_ = false;  // for:
  DecodeSetup viewed_;
  std::int64_t viewed_sequence_ = 0;
  Setup piece_;
  std::vector<std::int32_t> ids_;  // on their way to tokens_
  Tensor tokens_, wide_logits_;
  StepMemory step_;
  std::vector<std::int64_t> positions_;
  std::unique_ptr<CapturedStep> captured_;  // a step with:
  StepChoice captured_choice_;
  int steps_run_ = 0;
  const Replica* gathers_ = nullptr;  // that is told of each block
  std::function<void()> before_pass_;
};

}  // namespace lockstep::nn
