// Operations of a mixture of experts: which experts a token goes to, and how its rows get there and
// back. Words:
//
//   pair         a token and one of its k experts: pair t k + j is token t with its expert j
//   routed row   the place of a pair among all pairs, grouped by expert; those of an expert are in
//                the order of their tokens
//
//   4 tokens, 2 of 3 experts each      a: 0 2   b: 1 0   c: 0 2   d: 2 0
//   routed rows                        a b c d | b | a c d       expert 0 | 1 | 2
#pragma once

#include "lockstep/ops/arguments.h"

namespace lockstep::ops {

// The k largest logits of every token, the softmax of these alone, and where the pairs go.
//
// Of equal logits the expert with the smaller number comes first. NaN is chosen last, so every
// token has k different experts in any case.
struct Route {
  Tensor logits;   // [tokens, experts]
  Tensor experts;  // i32 [tokens, k]: the largest logit first
  Tensor rows;     // i32 [tokens, k]: the routed row of every pair
  Tensor pairs;    // i32 [tokens * k]: the pair of every routed row
  Tensor counts;   // i32 [experts]: routed rows of every expert
  Tensor weights;  // [tokens * k] statistic, by routed row
};

// dlogits of a loss that depends on weights, and of the sum of balance[e] p[e] over all tokens and
// experts, with p the softmax of all logits of a token.
struct RouteBackward {
  Tensor logits;
  Tensor experts;
  Tensor rows;
  Tensor weights;
  Tensor dweights;  // [tokens * k] statistic, by routed row
  Tensor balance;   // [experts] statistic, optional
  Tensor dlogits;   // [tokens, experts]; may be logits
};

// y[row] = x[pairs[row] / k]: the rows of tokens to their experts. The backward of CombineTokens
// without weights.
struct GatherTokens {
  Tensor pairs;                        // i32 [rows]; outside tokens * k is Error(kInvalidArgument)
  std::int64_t experts_per_token = 1;  // k
  Tensor x;                            // [tokens, width]
  Tensor y;                            // [rows, width]
};

// y[token] = residual[token] + the sum over j of weights[r] routed[r], r = rows[token][j]; without
// weights all are 1.
struct CombineTokens {
  Tensor rows;      // i32 [tokens, k]; outside routed is Error(kInvalidArgument)
  Tensor weights;   // [routed rows] statistic, optional
  Tensor routed;    // [routed rows, width]
  Tensor residual;  // [tokens, width], optional; may be y
  Tensor y;         // [tokens, width]
};

// dweights[row] = the sum over columns of x[row] dx[row]; then both rows are multiplied by
// weights[row].
struct WeightRows {
  Tensor weights;   // [rows] statistic
  Tensor x;         // [rows, width]
  Tensor dx;        // [rows, width]
  Tensor dweights;  // [rows] statistic
};

// ---- numbers for the loss that balances the experts (nn/parts/expert_counts.h)

// sums += counts.
struct AddCounts {
  Tensor counts;  // i32 [n]
  Tensor sums;    // i32 [n]
};

// count[0] = the targets that are not kNoTarget.
struct CountTargets {
  Tensor targets;  // i32 [n]
  Tensor count;    // i32 [1]
};

// balance[e] = coefficient factor targets counts[e] / max(1, tokens)^2, where tokens is the sum of
// the counts of all experts, divided by k, and targets is the number behind these.
struct BalanceExperts {
  Tensor counts;                       // i32 [experts + 1]
  std::int64_t experts_per_token = 1;  // k
  double coefficient = 0;
  Scalar factor = 1;
  Tensor balance;  // f32 [experts]
};

}  // namespace lockstep::ops
