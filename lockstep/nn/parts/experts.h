// A mixture of experts in place of a feed-forward network, as in Mixtral:
//
//   y = the sum over a token's k experts of weight(e) down_e(silu(gate_e(x)) up_e(x))
//
// A router, one linear layer without bias, gives every token a logit for each expert. The k largest
// are chosen, and their softmax is the weights (ops::Route). The rows of all pairs of tokens and
// experts are grouped by expert, and each expert multiplies its rows (nn/parts/row_pieces.h). Rows
// are tokens times k, however they are distributed.
//
// Backward weights the rows between down and SwiGLU, where both the gradient of a weight (the
// product of a row with its gradient) and the gradients of the rows can be had from what is there,
// so results of experts are not kept.
//
// router_loss is the coefficient of the loss that balances the experts (nn/parts/expert_counts.h).
// Its gradient is added; losses do not contain it.
//
// A tensor group divides the width of every expert. All ranks route all tokens alike, and sum the
// result, the gradients of weights and dx. With sequence parallelism x and y are a rank's tokens:
// all are gathered before the router, and sums are scattered.
//
// An expert group divides the experts (nn/expert_group.h). A rank routes its own tokens and sends
// their rows to the ranks of their experts; there are two kinds of rows then:
//
//   rows of this rank's tokens    tokens k, grouped by expert, as without a group
//   rows of its experts           what comes: from each rank, grouped by the own experts
//                                 (nn/expert_axis.h)
//
//   own tokens  --x-->  own experts: up, SwiGLU, down  --y-->  own tokens: weighted, added up
//   own tokens  --dy, weights-->  own experts: backward  --dx, dweights-->  own tokens
//
// A token has an expert once, so at most min(k, experts of a rank) of its rows go to one rank. The
// second kind of rows has memory for that many of all tokens of the group.
//
// With Setup::expert_capacity c an expert takes at most ceil(c k tokens / experts) rows of a rank's
// micro-batch, those of the first tokens. The others are dropped: they come after the rows of all
// experts, are never sent, and what they would add is zero. Weights stay as they are. The balancing
// loss counts all.
//
// The host has to know how many rows each expert has, so forward waits for these counts after the
// router (Pass::host_counts). With a capacity it also divides the rows.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "lockstep/nn/parts/linear.h"

namespace lockstep::nn {

struct ExpertsOptions {
  std::int64_t hidden = 0;
  std::int64_t width = 0;  // of an expert
  std::int64_t experts = 1;
  std::int64_t chosen = 1;  // experts of a token
  double router_loss = 0;
  double stddev = 0.02;
  double down_stddev = 0.02;
  TensorGroup tensor = {};  // divides the width
  ExpertGroup group = {};   // divides the experts
  std::string router = {};  // with a group: the router's full name, in an earlier block
};

class ExpertsPart : public Part {
 public:
  using Options = ExpertsOptions;

  ExpertsPart(Place& next, const std::string& name, const ExpertsOptions& options);

  void declare(Declaration& declaration, std::int64_t tokens, bool again) const;

  // As FeedForwardPart.
  void forward_up(const Pass& pass, const Tensor& x) const;
  void forward_down(const Pass& pass, const Tensor& y, const Tensor& residual = {}) const;
  void restore(const Pass& pass, const Tensor& x) const;
  Tensor backward_down(const Pass& pass, const Tensor& dy) const;
  void backward_up(const Pass& pass, const LinearPart::Backward& arguments) const;
  Tensor spent(const Pass& pass) const;
  std::int64_t spent_width() const { return options_.chosen * 2 * width(); }

 private:
  // The order of the spec.
  enum Saved : std::size_t {
    kLogits,
    kExperts,
    kRows,
    kPairs,
    kCounts,
    kWeights,
    kRouted,
    kGateUp,
    kActive,
    kOut,
    kDOut,
    kDActive,
    kDWeights,
    kBalance,
    kAllCounts,  // with the dropped ones
    kReceived,   // this and the next: with an expert group
    kOwnForward,
    kOwnBackward,
    kRowWeights,
    kOwnDWeights,
    kAllForward,  // this and the next: of all tokens, where ranks divide them
    kAllBackward,
    kTensors
  };
  // Parameters: the router, and then these of all experts.
  enum Matrix : std::size_t { kUp, kDown, kMatrices };
  static constexpr std::size_t kRouter = 0;

  std::int64_t width() const { return share_of(options_.width, options_.tensor).count; }
  // Of this rank, and the first of them.
  std::int64_t own_experts() const { return options_.experts / options_.group.size; }
  std::int64_t first_expert() const { return own_experts() * options_.group.rank; }
  bool divides_experts() const { return options_.group.size > 1; }
  std::size_t index_of(Matrix matrix, std::int64_t own_expert) const {
    return 1 + matrix * static_cast<std::size_t>(own_experts()) +
           static_cast<std::size_t>(own_expert);
  }
  void declare_parameters(Declaration& declaration) const;
  void declare_exchanges(Declaration& declaration, std::int64_t tokens) const;
  // Rows of this rank's tokens by the ranks of their experts, and those of its experts by the ranks
  // of their tokens.
  struct RowsOfRanks {
    std::vector<std::size_t> sent, received;
  };
  RowsOfRanks rows_of_ranks(const Pass& pass) const;
  // kCounts or kReceived, on the host: where that is not where they lie, as they were when
  // read_counts() was called.
  std::span<const std::int32_t> counts(const Pass& pass, Saved which) const;
  std::span<const std::int32_t> counts_of_experts(const Pass& pass) const {
    return counts(pass, divides_experts() ? kReceived : kCounts);
  }
  void read_counts(const Pass& pass, Saved which) const;
  // The first rows of a tensor, as many as the experts of this rank have.
  Tensor of_experts(const Pass& pass, Saved rows) const;
  // From rows of own tokens to those of own experts, and back.
  void send(const Pass& pass, Saved tokens, Saved experts) const;
  void send_back(const Pass& pass, Saved experts, Saved tokens) const;
  // Rows of all tokens to the rows of their experts; `own` has those of this rank's tokens.
  void to_experts(const Pass& pass, const Tensor& x, Saved own, Saved rows) const;
  // All tokens of a stream, of which a rank may have some.
  Tensor all_tokens(const Pass& pass, const Tensor& stream, Saved workspace) const;
  Tensor own_tokens(const Tensor& all) const;
  void sum_over_ranks(const Pass& pass, const Tensor& all, const Tensor& stream) const;
  bool divides_tokens() const { return options_.tensor.divides_tokens; }
  // f(first row, rows) for the pieces of the rows of one of this rank's experts.
  template <class F>
  void for_rows(const Pass& pass, std::int64_t own_expert, F&& f) const;
  void multiply(const Pass& pass, Matrix matrix, const Tensor& x, const Tensor& y) const;
  void activate(const Pass& pass) const;
  // The most rows of a rank that an expert takes, of that many tokens.
  std::int64_t capacity(const Setup& setup, std::int64_t tokens) const;
  // Moves the rows that are over the capacity behind the others.
  void drop(const Pass& pass) const;
  // What dropped rows add, in rows of this rank's tokens.
  void zero_dropped(const Pass& pass, Saved rows) const;
  // Multiplies the rows of the experts by their weights, and makes the gradients of these.
  void weight_rows(const Pass& pass) const;
  const Tensor& dweights_of_tokens(const Pass& pass) const;
  void count(const Pass& pass) const;
  void backward_router(const Pass& pass, const Tensor& x) const;
  // The gradient of the balancing loss by the probabilities of each expert; absent without it.
  Tensor balance(const Pass& pass) const;

  ExpertsOptions options_;
};

}  // namespace lockstep::nn
