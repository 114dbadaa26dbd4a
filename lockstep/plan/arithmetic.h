// Parameters and floating-point operations of a transformer.
//
// Letters as in the field: V vocabulary, s sequence, h hidden size, l layers, P parameters.
//
// Parameters are exact. With biases, four h x h matrices in attention and a feed-forward of 4h, the
// gpt2 family comes to
//
//   P = V h + s h + l (12 h^2 + 13 h) + 2 h
//
// FLOPs are those of matrix products, a multiplication and an addition counting two. Everything
// else (norms, softmax, activations, the optimizer) is left out, as the field does. A token costs
//
//   forward    2 M + 4 l s h      M: weights that a token is multiplied with
//   backward   4 M + 8 l s h      gradients of inputs and of weights, as much again each
//   both       6 M + 12 l s h
//
// Of an encoder-decoder a token is one of the target together with one of the source, which is as
// long; a decoder's layer has two attentions.
//
// M are the matrices of the layers and the matrix that gives logits, tied or not; embeddings are
// looked up, biases and norms are no products, and a pooler sees one token of a sequence. The
// second term is attention itself: scores and the weighted sum of values take 2 s h each per layer,
// with the whole s x s square counted; causal kernels that skip the masked half do half of it. With
// a window of attention its tokens take the place of s where they are fewer.
//
// The rule of thumb 6 P takes P for M and leaves attention out: good where h is much larger than
// s / 6 and the embedding is small or tied.
#pragma once

#include <string_view>

#include "lockstep/plan/count.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::plan {

struct Parameters {
  Count embedding = 0;    // of tokens
  Count positions = 0;    // learned ones
  Count token_types = 0;  // BERT's two
  Count attention = 0;    // this and the next two: all layers together
  Count feed_forward = 0;
  Count norms = 0;  // with the one outside the layers
  Count head = 0;   // what it has of its own

  Count total() const;
};

// Throws as check() does, and when a count is beyond 64 bits.
Parameters count_parameters(const ModelShape& shape);

// How much of a layer's forward backward recomputes instead of keeping it.
enum class Recompute {
  kNone,
  kSelective,  // what is cheap: results of norms and of activation functions
  kFull,       // the whole layer, from its input
  kAttention,  // the attention core: scores, softmax, dropout, weighted sum
};
// The modes of a run. Its attention never keeps the core.
inline constexpr Recompute kAllRecompute[] = {Recompute::kNone, Recompute::kSelective,
                                              Recompute::kFull};
// Those that the formulas of plan/memory.h know: of layers whose attention keeps its core.
inline constexpr Recompute kFormulaRecompute[] = {Recompute::kNone, Recompute::kAttention,
                                                  Recompute::kFull};
std::string_view name(Recompute recompute);  // "none", "selective", "full", "attention"

// Of one token in a sequence of a given length. Doubles: exact up to 2^53.
struct TokenFlops {
  double layers = 0;     // forward, 2 x the matrices of all layers
  double attention = 0;  // forward, 4 l s h
  double head = 0;       // forward, 2 x the matrices of the head

  // M of the formulas.
  double weights() const { return (layers + head) / 2; }
  double forward() const { return layers + attention + head; }
  double backward() const { return 2 * forward(); }
  double total() const { return 3 * forward(); }
  // What comes on top: nothing (norms and activation functions are no matrix products), the
  // attention term, or one more forward of the layers.
  double recomputed(Recompute recompute) const;
};
TokenFlops count_flops(const ModelShape& shape, Count sequence);

// 6 P for each token.
double rule_of_thumb_flops(double parameters, double tokens);

// How many GPUs do that many FLOPs in that time, and how long that many GPUs take.
// `flops_per_gpu` is what one sustains per second, not what its data sheet promises. Unrounded.
double gpus_needed(double flops, double days, double flops_per_gpu);
double days_needed(double flops, double gpus, double flops_per_gpu);
// The next whole number of GPUs; throws Error(kInvalidArgument) above 10^15.
Count whole_gpus(double gpus);

}  // namespace lockstep::plan
