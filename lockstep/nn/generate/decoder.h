// A model that continues a text: it reads tokens and says what may come next.
//
//   Weights weights(model, DType::kBF16, ops);
//   Decoder decoder(model, weights.flat(), weights.buffer(), {.positions = 1024}, ops);
//   Tensor logits = decoder.prefill(prompt);
//   logits = decoder.step(chosen);
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
#include <span>
#include <vector>

#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/model.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/tensor/arena.h"

namespace lockstep::nn {

struct DecoderOptions {
  std::int64_t positions = 0;  // that the cache has room for: prompt and continuation together
  std::int64_t rows = 256;     // of a prompt that are read at once, at most; rounded down to 2^n
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
  std::size_t logits = kAbsent;
  std::size_t wide_logits = kAbsent;

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
  std::int64_t position() const { return position_; }  // how many tokens were read
  std::int64_t classes() const { return plan_.classes; }
  const DecoderPlan& plan() const { return plan_; }

  // Reads tokens behind those that were read. Returns the logits of what follows the last, f32
  // [classes], on the device; they hold until the next call. Throws Error(kInvalidArgument) for no
  // token, for one that is outside the vocabulary, and for more than there is room for; what was
  // read before stays.
  Tensor prefill(std::span<const std::int32_t> tokens);
  Tensor step(std::int32_t token) { return prefill({&token, 1}); }

  // Forgets all behind the first so many tokens.
  void rewind(std::int64_t position);

 private:
  struct BlockViews {
    std::vector<Tensor> parameters;
    std::vector<Tensor> cache;
    std::vector<Tensor> tensors;
    Tensor scratch;
    Tensor output;
  };

  Decoder(const Model& model, DType dtype, const DecoderOptions& options, Ops& ops);
  void make_views(std::int64_t rows);
  void read(std::span<const std::int32_t> tokens);

  const Model& model_;
  Ops& ops_;
  DecoderPlan plan_;
  Arena arena_;
  std::vector<BlockViews> views_;
  Setup piece_;                    // what the views were made for
  std::vector<std::int32_t> ids_;  // on their way to tokens_
  Tensor tokens_, logits_, wide_logits_;
  std::int64_t position_ = 0;
  const Replica* gathers_ = nullptr;  // that is told of each block
  std::function<void()> before_pass_;
};

}  // namespace lockstep::nn
