// Attention of a context group in a ring (nn/context_slice.h): every rank keeps its queries, and
// keys and values travel around the ranks.
//
//   step 0   rank r attends to its own keys     while it sends them to r + 1
//   step k   rank r attends to those of r - k   while it sends them on
//
// A step's result and its log-sum-exp join those of the steps before (ops::MergeAttention), in f32.
// Backward starts from the log-sum-exp of all keys, so the gradients of a step do not depend on the
// others: keys and values travel again, and the f32 sums of their gradients travel behind them, one
// step more, to their owner.
//
// Causal attention is balanced. Rank r has slices r and 2c - 1 - r, of length l. With the keys of
// rank j in front of it in the ring
//
//   j < r    both slices of queries see slice j, and not slice 2c - 1 - j     2 l^2 pairs
//   j > r    the second one sees both slices of keys, the first one none      2 l^2 pairs
//   j = r    l queries see up to l keys, l queries up to 2 l                  2 l^2 pairs and l
//
// so all ranks compute as much in every step.
#pragma once

#include <cstddef>

#include "lockstep/nn/parts/attention_options.h"
#include "lockstep/nn/parts/declaration.h"

namespace lockstep::nn {

class RingAttentionPart : public Part {
 public:
  RingAttentionPart(Place& next, std::string name, const AttentionOptions& options)
      : Part(next, std::move(name), 0, kTensors), options_(options) {}

  static bool is_used(const Setup& setup) {
    return setup.context.size > 1 && setup.context.attention == ContextAttention::kRing;
  }

  // Without elements where it is not used.
  void declare(Declaration& declaration) const;
  // Of the tensor that forward keeps: [batch, runs, heads, tokens of a run].
  Shape log_sum(const Setup& setup) const;

  // `packed` has queries, keys and values of the rank's tokens, with their positions.
  void forward(const Pass& pass, const Tensor& packed, const Tensor& attended,
               const Tensor& log_sum) const;
  struct Backward {
    Tensor packed;
    Tensor attended;
    Tensor log_sum;
    Tensor dattended;
    Tensor dpacked;  // is written
  };
  void backward(const Pass& pass, const Backward& arguments) const;

 private:
  // The order of the spec.
  enum Saved : std::size_t {
    kKeysValues,  // two, of which one is received: [tokens, 2 kv_width]
    kNextKeysValues,
    kMore,  // of one step and one run
    kMoreLogSum,
    kSum,   // f32 [tokens, query_width]; in f32 it is what was attended
    kMask,  // of the keys of one sequence
    kBackwardKeysValues,
    kBackwardNextKeysValues,
    kDKeysValues,  // f32, two, of which one is received
    kDNextKeysValues,
    kDSomeKeysValues,  // of one step and one run
    kDSomeQueries,
    kDQueries,  // f32 [tokens, query_width]
    kBackwardMask,
    kTensors
  };

  // Some queries of a sequence, and the keys of one rank that they see: the first ones.
  struct Pair {
    std::int64_t sequence = 0;  // of the batch
    TokenRun queries;
    std::size_t run = 0;
    std::int64_t keys = 0;
    bool causal = false;
  };
  // Those of this rank with the keys of another one.
  std::vector<Pair> pairs_of(const Setup& setup, int owner) const;
  std::int64_t tokens(const Setup& setup) const { return sequence_of(setup.shape, options_.side); }
  // The owner of the keys and values that this rank has in a step.
  static int owner_of(const Setup& setup, int step);
  ops::AttentionShape shape(const Setup& setup, const Pair& pair) const;
  ops::Dropout dropout(const Pass& pass, const Pair& pair, int owner) const;
  // The mask of a rank's keys, in `memory`; absent where the batch has none.
  Tensor mask(const Pass& pass, const Pair& pair, int owner, const Tensor& memory) const;
  // Rows of a pair's queries, and of its keys, among those of all sequences.
  Tensor query_rows(const Setup& setup, const Pair& pair, const Tensor& rows) const;
  Tensor key_rows(const Setup& setup, const Pair& pair, const Tensor& rows) const;
  void attend(const Pass& pass, const Pair& pair, int owner, const Tensor& packed,
              const Tensor& keys_values, const Tensor& sum, const Tensor& log_sum) const;
  void differentiate(const Pass& pass, const Pair& pair, int owner, const Backward& arguments,
                     const Tensor& keys_values) const;
  void pack(const Pass& pass, const Tensor& packed, const Tensor& keys_values) const;

  AttentionOptions options_;
};

}  // namespace lockstep::nn
