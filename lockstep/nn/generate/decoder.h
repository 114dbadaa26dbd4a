// Inference of a language model with a key/value cache: reads tokens and returns the logits of the
// next one.
//
//   Weights weights(model, DType::kBF16, ops);
//   Decoder decoder(model, weights.flat(), weights.buffer(), {.positions = 1024}, ops);
//   Tensor logits = decoder.prefill(prompt);
//   logits = decoder.step(chosen);
//
// It may hold several sequences, each with its own cache. Prompts are read one by one, and then all
// sequences together in steps of one token each: queue_step() reads tokens from device memory and
// leaves logits there, so that steps can be queued without the host (nn/generate/continuation.h).
// If the device can capture operations, a step is captured once and launched as a whole.
//
// Keys and values stay in the cache, so a step costs one pass over the parameters, however long the
// text. A prompt is read in chunks of many tokens, which cost little more than one token. The sizes
// of chunks are powers of two, so that there are few shapes. Only the logits of the last token are
// computed.
//
// It allocates DecoderPlan::bytes() once, at construction. The caller owns the parameters, which
// are read in place, so a decoder over a replica follows its training. One thread at a time.
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
  std::int64_t positions = 0;  // the size of the cache: prompt and continuation together
  std::int64_t rows = 256;     // of a prompt that are read at once, at most; rounded down to 2^n
  std::int64_t batch = 1;      // sequences
};

// How tokens are chosen on the device (ops::Sample).
struct StepChoice {
  ops::ChoiceOptions options;
  std::int64_t choices = 0;  // tokens are chosen from the first `choices` classes

  friend bool operator==(const StepChoice&, const StepChoice&) = default;
};

// The memory plan of a decoder.
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
  bool reads_back = false;        // any block does
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

// Throws Error(kUnsupported) with the block that cannot decode, and Error(kInvalidArgument) if the
// model has fewer positions.
DecoderPlan plan_decoder(const Model& model, DType dtype, const DecoderOptions& options,
                         const Ops& ops);

class Decoder {
 public:
  // `model`, `parameters` (a flat buffer of `flat`, of the compute type) and `ops` outlive the
  // decoder.
  Decoder(const Model& model, const FlatParameters& flat, const Tensor& parameters,
          const DecoderOptions& options, Ops& ops);
  // Uses the parameters of a replica, without a copy. If these are gathered from other workers or
  // another tier, each pass over the model calls the replica's listener like a forward;
  // `before_pass` is called before each, so that other workers can take part.
  Decoder(const Replica& replica, const DecoderOptions& options,
          std::function<void()> before_pass = {});

  std::int64_t positions() const { return plan_.setup.positions; }
  std::int64_t batch() const { return plan_.setup.batch; }
  // How many tokens of a sequence were read.
  std::int64_t position(std::int64_t sequence = 0) const { return positions_.at(index(sequence)); }
  std::int64_t classes() const { return plan_.classes; }
  const DecoderPlan& plan() const { return plan_; }
  Ops& ops() const { return ops_; }

  // Appends tokens to a sequence. Returns the logits of the token after the last, f32 [classes], on
  // the device, valid until the next call. Throws Error(kInvalidArgument) for no token, a token
  // outside the vocabulary, and more tokens than positions; the sequence is then unchanged.
  Tensor prefill(std::span<const std::int32_t> tokens, std::int64_t sequence = 0);
  Tensor step(std::int32_t token) { return prefill({&token, 1}); }

  // Forgets all but the first `position` tokens of a sequence.
  void rewind(std::int64_t position, std::int64_t sequence = 0);

  // Device memory of steps, with one element or row for each sequence.
  struct StepMemory {
    Tensor tokens;          // i32: what the next step reads
    Tensor lengths;         // i32: how many tokens came before; rises with ops::Sample
    Tensor text_positions;  // i32, read by the choice of tokens
    Tensor seeds;           // i64, for the same
    Tensor logits;          // [batch, classes] of the compute type: what prefill and steps leave
  };
  const StepMemory& step_memory() const { return step_; }
  // Queues the sampling of a sequence's next token from its logits into step_memory().tokens.
  void queue_choice(const StepChoice& choice, std::int64_t sequence);
  // Queues the reading of step_memory().tokens at lengths, and the choice of all next tokens. The
  // caller must ensure that no sequence in use is full, and that lengths equal position() before
  // the first step; a full sequence that is not in use reads and writes its last position.
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
  // Makes the views for a chunk of a sequence, or for a step.
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
  std::vector<std::int32_t> ids_;  // staging of tokens_
  Tensor tokens_, wide_logits_;
  StepMemory step_;
  HostCounts host_counts_;  // of the block that runs
  std::vector<std::int64_t> positions_;
  std::unique_ptr<CapturedStep> captured_;  // a step with:
  StepChoice captured_choice_;
  int steps_run_ = 0;
  const Replica* gathers_ = nullptr;  // whose listener is called for each block
  std::function<void()> before_pass_;
};

}  // namespace lockstep::nn
