// The arguments of each operation, as plain structs of tensor views; ops/ops.h runs them.
//
// Words and letters:
//
//   rows           tokens of all sequences, one after the other: batch * sequence of them
//   activation     a tensor [rows, width] of the compute type: f32, bf16 or f16
//   weight         of the compute type too; a linear layer's is [out, in]
//   statistic      f32: means, rstds, log-sum-exps, losses
//   d...           the gradient of the loss by what follows: dy, dx, dweight
//
// Two rules about gradients, for every operation: those of parameters are added to what is there,
// and have the type of the parameter or f32; those of activations overwrite, unless a field says
// `accumulate`. Where a field says `overwrite`, the gradients of parameters need not be cleared
// before; the bits are those of adding to zeros, but for the sign of zeros. An output may lie on an
// input only where its comment says so.
//
// A tensor without elements, the default of a field, is not given; the comment says `optional`.
// Sums run in f32 or wider whatever the type; a result is rounded once, when it is stored.
//
// The reference also computes in f64, for checks of gradients by finite differences: all that is of
// the compute type is f64 then, and so are statistics and an attention's probabilities.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "lockstep/ops/rotary_scaling.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::ops {

inline bool is_given(const Tensor& tensor) { return tensor.elements() > 0; }

// A number that changes from step to step: a value, or one f64 on the operation's device that is
// read when the operation runs. With the latter, operations that were captured once (Ops::
// begin_capture) can be launched again with another number.
struct Scalar {
  constexpr Scalar() = default;
  template <class Number>
  requires std::is_arithmetic_v<Number>
  constexpr Scalar(Number number) : value(static_cast<double>(number)) {}
  Scalar(const Tensor& element) : at(element) {}  // f64 [1]

  // The number, where it is a value or lies on the CPU.
  operator double() const { return is_given(at) ? at.as<const double>()[0] : value; }

  double value = 0;
  Tensor at;
};

// Sets elements to zero with a probability and divides the others by 1 - probability. Whether an
// element stays is a pure function of seed, step and its position: `first` plus its index
// (base/math/counter_rng.h), so the backward of dropout is the same dropout of the gradient.
struct Dropout {
  double probability = 0;  // 0: nothing happens
  std::uint64_t seed = 0;
  Scalar step = 0;
  std::uint64_t first = 0;  // a multiple of 4
};

enum class Activation : std::uint8_t {
  kGeluTanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), GPT-2's
  kGeluErf,   // x/2 (1 + erf(x / sqrt 2)), BERT's
  kRelu,
};

// ---- linear layers

// y = x weight^T + bias + residual.
struct Linear {
  Tensor x;         // [rows, in]
  Tensor weight;    // [out, in]
  Tensor bias;      // [out], optional
  Tensor residual;  // [rows, out], optional; may be y
  Tensor y;         // [rows, out]
};

// z = x weight^T + bias, rounded to the compute type; y = f(z); derivative = f'(z), what backward
// needs of z. The same bits as Linear followed by Activate.
struct LinearActivation {
  Tensor x;
  Tensor weight;
  Tensor bias;  // optional
  Activation activation = Activation::kGeluTanh;
  Tensor y;           // [rows, out]
  Tensor derivative;  // [rows, out], optional
  Tensor z;           // [rows, out], optional
};

// dx = dy weight, times `factor` element by element where given: the kept derivative of the
// activation that made x. Or times f'(z), where z is given: the input of that activation, of Ops
// that say so (Ops::differentiates_from_input).
struct LinearBackwardInput {
  Tensor dy;                // [rows, out]
  Tensor weight;            // [out, in]
  Tensor factor;            // [rows, in], optional; not together with accumulate
  Tensor dx;                // [rows, in]
  bool accumulate = false;  // dx += dy weight
  Activation activation = Activation::kGeluTanh;
  Tensor z = {};  // [rows, in], optional; neither with factor nor with accumulate
};

// dweight += dy^T x; dbias += the column sums of dy.
struct LinearBackwardWeight {
  Tensor dy;       // [rows, out]
  Tensor x;        // [rows, in]
  Tensor dweight;  // [out, in]
  Tensor dbias;    // [out], optional
  // Given: dweight and dbias are those of a part of the outputs, dy's columns from this one on.
  std::optional<std::int64_t> first_output = std::nullopt;
  bool overwrite = false;  // dweight and dbias
};

// ---- element by element

// y = f(z), derivative = f'(z). y may be z.
struct Activate {
  Activation activation = Activation::kGeluTanh;
  Tensor z;
  Tensor y;
  Tensor derivative;  // optional
};

// y = a b; y may be either.
struct Multiply {
  Tensor a;
  Tensor b;
  Tensor y;
};

// y = a + b; y may be either.
struct Add {
  Tensor a;
  Tensor b;
  Tensor y;
};

enum class Gate : std::uint8_t {
  kSilu,      // g / (1 + exp(-g)), Llama's
  kGeluTanh,  // as Activation::kGeluTanh, Gemma's
};

// y = f(gate) up.
struct SwiGlu {
  Tensor gate_up;  // [rows, 2 width]: a row holds its gates, then its ups
  Tensor y;        // [rows, width]
  Gate gate = Gate::kSilu;
};
struct SwiGluBackward {
  Tensor gate_up;
  Tensor dy;
  Tensor dgate_up;  // may be gate_up
  Gate gate = Gate::kSilu;
};

// y may be x.
struct Drop {
  Dropout dropout;
  Tensor x;
  Tensor y;
};

// Any of f32, f64, bf16, f16 to any of them, rounded to nearest even.
struct Cast {
  Tensor from;
  Tensor to;
};

// x *= factor.
struct Scale {
  Tensor x;
  double factor = 1;
};

// x = cap tanh(x / cap), which keeps x between -cap and cap.
struct SoftCap {
  Tensor x;
  double cap = 1;
};

// The heads of queries, keys or values inside rows that hold more: head i of a row is the
// `head_size` elements from column first + i * head_size on.
struct Heads {
  Tensor rows;  // [batch * sequence, width]
  std::int64_t first = 0;
};

// ---- norms

enum class NormKind : std::uint8_t {
  kLayer,  // (x - mean) / sqrt(variance + epsilon) * gain + bias
  kRms,    // x / sqrt(mean of squares + epsilon) * gain
};

// sum = x + dropout(branch), rounded to the compute type; y = norm(sum). Without a branch, x itself
// is the sum.
struct Norm {
  NormKind kind = NormKind::kLayer;
  float epsilon = 1e-5f;
  Tensor x;                // [rows, width]
  Tensor branch;           // [rows, width], optional
  Dropout dropout;         // of the branch
  Tensor sum;              // [rows, width], given with a branch; may be x or branch
  Tensor gain;             // [width]
  Tensor bias;             // [width], optional; none for kRms
  Tensor y;                // [rows, width]
  Tensor mean;             // [rows] statistic; none for kRms
  Tensor rstd;             // [rows] statistic: 1 / sqrt(...)
  bool above_one = false;  // `gain` is how far the gain is above 1 (Gemma's)
};

// dsum = the gradient through the norm + dresidual; dbranch = dropout(dsum).
struct NormBackward {
  NormKind kind = NormKind::kLayer;
  Tensor dy;
  Tensor sum;  // what was normalised: Norm's sum, or x without a branch
  Tensor gain;
  Tensor mean;
  Tensor rstd;
  Tensor dresidual;  // [rows, width], optional: what comes to the sum by another way
  Tensor dsum;       // [rows, width]; may be dy or dresidual
  Dropout dropout;   // with dbranch: the one of Norm
  Tensor dbranch;    // [rows, width], optional: only needed where there was dropout
  Tensor dgain;
  Tensor dbias;            // optional
  bool overwrite = false;  // dgain and dbias
  bool above_one = false;
};

// An RMS norm of every head by itself: y = x / sqrt(mean of squares + epsilon) * gain.
struct HeadNorm {
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  float epsilon = 1e-6f;
  Heads x;
  Tensor gain;  // [head_size]
  Heads y;      // may be x
  Tensor rstd;  // [rows, heads] statistic
};
struct HeadNormBackward {
  std::int64_t heads = 0;
  std::int64_t head_size = 0;
  Heads x;  // what was normalised
  Tensor gain;
  Tensor rstd;
  Heads dy;
  Heads dx;  // may be dy
  Tensor dgain;
};

// ---- embedding

// y[row] = dropout(tokens_table[tokens[row]] + positions_table[row % sequence]
//                  + types_table[types[row]]).
//
// tokens_table may be a shard: the rows from first_token on of a table of `vocabulary` rows. A
// token of another shard adds nothing, so the sum over all shards is that of the whole table.
struct Embedding {
  Tensor tokens;              // i32 [rows]; an index outside the vocabulary is
                              // Error(kInvalidArgument)
  Tensor types;               // i32 [rows], given with types_table
  std::int64_t sequence = 0;  // given with positions_table, which has at least as many rows
  Tensor tokens_table;
  Tensor positions_table;  // optional
  Tensor types_table;      // optional
  Dropout dropout;
  Tensor y;  // [rows, width]
  std::int64_t first_token = 0;
  std::int64_t vocabulary = 0;  // 0: the table has all tokens
};
struct EmbeddingBackward {
  Tensor tokens;
  Tensor types;
  std::int64_t sequence = 0;
  Tensor dy;  // is overwritten where there is dropout
  Dropout dropout;
  Tensor dtokens_table;     // optional
  Tensor dpositions_table;  // optional
  Tensor dtypes_table;      // optional
  std::int64_t first_token = 0;
  std::int64_t vocabulary = 0;
};

// ---- attention

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t queries = 0;  // per sequence
  std::int64_t keys = 0;     // per sequence; as many as queries unless they come from elsewhere
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads; query head i uses key head i / (heads / kv_heads)
  std::int64_t head_size = 0;
  bool causal = false;  // query i sees keys 0 to i + keys - queries
  DType dtype = DType::kF32;
  std::int64_t window = 0;  // over 0, of causal attention: of these the last `window` alone
  // Over 0, and odd: scores have a bias by that many distances of a key from its query, those from
  // -distances / 2 to distances / 2. Farther keys have that of the nearest one.
  std::int64_t distances = 0;
};

// out = dropout(softmax(scale q k^T)) v, head by head. A query that sees no key has out = 0. With a
// soft cap a scaled score s becomes softcap tanh(s / softcap). With a bias the scaled score of
// query i and key j gets that of the distance j - (i + keys - queries).
struct Attention {
  AttentionShape shape;
  float scale = 1;    // 1 / sqrt(head_size)
  float softcap = 0;  // 0: none; not together with a bias
  Heads q, k, v;
  Tensor key_mask;       // u8 [batch, keys], optional: 0 where a key is padding
  Dropout dropout;       // position ((batch * heads + head) * queries + query) * keys + key
  Tensor out;            // [batch * queries, heads * head_size]
  Tensor log_sum;        // [batch, heads, queries] statistic: log-sum-exp of the scores as they are
                         // after cap and bias; -infinity where a query sees no key
  Tensor probabilities;  // [batch, heads, queries, keys] f32, optional: before dropout
  Tensor bias = {};      // [heads, distances] statistic, given with shape.distances
};

// Gradients of the heads, for probabilities exp(score - log_sum) and their result `out`, which may
// be those of more keys than these. They may lie in the same rows as each other (dq, dk, dv of one
// packed tensor) but not on q, k or v.
struct AttentionBackward {
  AttentionShape shape;
  float scale = 1;
  float softcap = 0;
  Heads q, k, v;
  Tensor key_mask;
  Dropout dropout;
  Tensor out;
  Tensor log_sum;
  Tensor dout;  // [batch * queries, heads * head_size]
  Heads dq, dk, dv;
  Tensor bias = {};
  Tensor dbias = {};  // [heads, distances] statistic, given with a bias: of all sequences
};

// Joins attention to some more keys to what was attended before, by the log-sum-exps of both:
//
//   total = log(exp(log_sum) + exp(more_log_sum))
//   out = exp(log_sum - total) out + exp(more_log_sum - total) more, and log_sum = total
//
// A side whose log-sum-exp is -infinity saw no key and adds nothing.
struct MergeAttention {
  std::int64_t heads = 0;
  Tensor more;          // [queries, heads * head_size]
  Tensor more_log_sum;  // [heads, queries] statistic
  Tensor out;           // [queries, heads * head_size] statistic
  Tensor log_sum;       // [heads, queries] statistic
};

// Columns of rows are copied to columns of others, or added to them, of any compute types.
struct CopyColumns {
  Heads from;
  Heads to;
  std::int64_t columns = 0;
  bool accumulate = false;
};

// Turns pairs (i, i + head_size / 2) of every head by position * theta^(-2 i / head_size), scaled,
// divided by slowing[i], and multiplies them by `amplitude`; position = first_position +
// row % sequence. Backward turns back, and multiplies by the same. In place.
struct Rotary {
  Heads x;
  std::int64_t heads = 0;
  std::int64_t head_size = 0;  // even
  std::int64_t stride = 0;  // from head to head, where these are parts of wider ones; 0: head_size
  std::int64_t sequence = 0;
  std::int64_t first_position = 0;  // for rows that continue others, as in text generation
  float theta = 10000;
  RotaryScaling scaling = {};
  Tensor slowing = {};  // f32 [head_size / 2], in host memory on every device; optional
  float amplitude = 1;
  bool backward = false;
};

// One token of each sequence of a batch, as in generating text: its keys and values join those of
// the tokens before it, and its queries attend to all of them.
//
//   keys (turned by the position where `rotary`) and values go to cache[i][lengths[i]]
//   out[i] = softmax(scale q k^T) v over cache[i][0] to cache[i][lengths[i]], head by head, or over
//   the last `window` of these
struct DecodeAttention {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads, as in AttentionShape
  std::int64_t head_size = 0;
  float scale = 1;
  float softcap = 0;             // as Attention's
  std::int64_t window = 0;       // 0: none
  bool rotary = false;           // queries and keys, as Rotary does with the position lengths[i]
  std::int64_t rotary_size = 0;  // the elements of a head that turn; 0: all
  float theta = 10000;
  RotaryScaling scaling = {};
  Tensor slowing = {};  // as Rotary's; optional
  float amplitude = 1;
  Tensor lengths;  // i32 [batch], read on the device; outside the cache is Error(kInvalidArgument)
  Tensor packed;   // [batch, (heads + 2 kv_heads) head_size]: queries, keys, values
  Tensor cache;    // [batch, positions, 2 kv_heads head_size]: keys, values
  Tensor out;      // [batch, heads head_size]
};

// ---- choice of tokens

// In tokens where no logit can be chosen: one is NaN or infinite, or all are -infinity. The CPU
// throws Error(kInvalidArgument) instead.
inline constexpr std::int32_t kNoToken = -1;

// tokens[i] = the token that Sampler (ops/sampler.h) draws from logits[i], the same on every
// device. Then positions increase by one, and lengths by one up to last_length.
struct Sample {
  Tensor logits;             // [batch, classes]
  std::int64_t choices = 0;  // tokens are chosen from the first `choices` classes
  double temperature = 1;    // 0: the most probable token
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1;
  Tensor seeds;      // i64 [batch]: the bits of a seed for each sequence
  Tensor positions;  // i32 [batch], of the token in its text
  Tensor lengths;    // i32 [batch], optional
  std::int64_t last_length = 0;
  Tensor tokens;  // i32 [batch]
};

// ---- losses

inline constexpr std::int32_t kNoTarget = -100;

// losses[row] = log-sum-exp(logits[row]) - logits[row][target], 0 where the target is kNoTarget.
// With `gradient`, logits become their gradient: factor * (softmax - one at the target), 0 where
// there is no target.
//
// Logits may be a shard: those from first_class on of all_classes. `statistics` then has the
// LogitStatistics of every shard, and the losses are those of all classes.
//
// Logits may be capped (SoftCap). With `softcap` their gradient is that of the logits before.
struct CrossEntropy {
  Tensor logits;   // [rows, classes]
  Tensor targets;  // i32 [rows]; outside all classes is Error(kInvalidArgument)
  Tensor losses;   // [rows] statistic
  bool gradient = true;
  Scalar factor = 1;
  std::int64_t first_class = 0;
  std::int64_t all_classes = 0;  // 0: the logits have all classes
  Tensor statistics = {};        // [shards, rows, kLogitStatistics] statistic, given with shards
  double softcap = 0;            // 0: none
};

// statistics[row] of a shard of logits: the largest logit, the sum of e^(logit - largest), and the
// logit of the target; 0 where the target is in another shard, and all 0 where there is none.
inline constexpr std::int64_t kLogitStatistics = 3;
struct LogitStatistics {
  Tensor logits;   // [rows, classes]
  Tensor targets;  // i32 [rows]
  std::int64_t first_class = 0;
  std::int64_t all_classes = 0;
  Tensor statistics;  // [rows, kLogitStatistics] statistic
};

// losses[row] = the sum of (x - target)^2 over the row; dx = 2 factor (x - target).
struct SquaredError {
  Tensor x;       // [rows, width]
  Tensor target;  // as x
  Tensor losses;  // [rows] statistic
  Tensor dx;      // optional; may be x
  Scalar factor = 1;
};

}  // namespace lockstep::ops
