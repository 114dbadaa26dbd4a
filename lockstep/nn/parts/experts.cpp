#include "lockstep/nn/parts/experts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/nn/parts/expert_counts.h"
#include "lockstep/nn/parts/host_copy.h"
#include "lockstep/nn/parts/row_pieces.h"

namespace lockstep::nn {

ExpertsPart::ExpertsPart(Place& next, const std::string& name, const ExpertsOptions& options)
    : Part(next, name,
           1 + kMatrices * static_cast<std::size_t>(options.experts / options.group.size),
           kTensors),
      options_(options) {}

void ExpertsPart::declare_parameters(Declaration& declaration) const {
  if (divides_experts()) {
    declaration.tied_weight(named("router"), options_.experts, options_.hidden, options_.router);
  } else {
    declaration.weight(named("router.weight"), options_.experts, options_.hidden, options_.stddev);
  }
  std::vector<std::string> elsewhere;
  const auto matrices = [&](const char* what, std::int64_t out, std::int64_t in, double stddev,
                            const TensorShard& shard) {
    for (std::int64_t e = 0; e < options_.experts; ++e) {
      std::string matrix = named(fmt::format("experts.{}.{}.weight", e, what));
      if (e < first_expert() || e >= first_expert() + own_experts()) {
        elsewhere.push_back(std::move(matrix));
        continue;
      }
      declaration.weight(std::move(matrix), out, in, stddev);
      declaration.shard(shard);
    }
  };
  matrices("gate_up", 2 * width(), options_.hidden, options_.stddev,
           shard_of(0, {options_.width, options_.width}, options_.tensor));
  matrices("down", options_.hidden, width(), options_.down_stddev,
           shard_of(1, {options_.width}, options_.tensor));
  if (divides_experts()) declaration.divide_experts(options_.group, std::move(elsewhere));
}

// If tokens choose all experts equally often.
void ExpertsPart::declare_exchanges(Declaration& declaration, std::int64_t tokens) const {
  if (!divides_experts()) return;
  const auto ranks = static_cast<std::uint64_t>(options_.group.size);
  const auto others = [&](std::int64_t count, std::size_t bytes) {
    return static_cast<std::uint64_t>(count) * bytes * (ranks - 1) / ranks;
  };
  const std::int64_t taken = options_.experts * capacity(declaration.setup(), tokens);
  const std::int64_t rows = std::min(tokens * options_.chosen, taken);
  const std::uint64_t row_bytes =
      others(rows * options_.hidden, size_of(declaration.setup().dtype));
  const std::uint64_t counts = others(options_.experts, sizeof(std::int32_t));
  const Recompute recompute = declaration.setup().recompute;
  const std::uint64_t times = recompute == Recompute::kNone ? 4 : 5;  // x, y, dy, dx; x again
  declaration.sends_to_experts(times * row_bytes + 2 * others(rows, sizeof(float)) +
                               (recompute == Recompute::kFull ? 2 : 1) * counts);
}

void ExpertsPart::declare(Declaration& declaration, std::int64_t tokens, bool again) const {
  const std::int64_t rows = tokens * options_.chosen;
  const TensorGroup& tensor = options_.tensor;
  declare_parameters(declaration);
  declaration.reads_back();
  declaration.linear(tokens, options_.hidden, options_.experts);
  // The most that come to the experts of this rank.
  const bool drops = declaration.setup().expert_capacity > 0;
  const std::int64_t capacity = this->capacity(declaration.setup(), tokens);
  const std::int64_t most_of_rank =
      std::min(tokens * std::min(options_.chosen, own_experts()), own_experts() * capacity);
  const std::int64_t most = divides_experts() ? options_.group.size * most_of_rank : rows;
  const Shape pairs = {tokens, options_.chosen};
  declaration.activation(named("logits"), {tokens, options_.experts}, Life::kKept);
  declaration.indices(named("experts"), pairs, Life::kKept);
  declaration.indices(named("rows"), pairs, Life::kKept);
  declaration.indices(named("pairs"), {rows}, Life::kKept);
  declaration.indices(named("counts"), {options_.experts}, Life::kKept);
  declaration.statistic(named("weights"), {rows}, Life::kKept);
  declaration.activation(named("routed"), {most, options_.hidden}, Life::kRestored);
  declaration.activation(named("packed"), {most, 2 * width()}, Life::kKept);
  declaration.activation(named("active"), {most, width()}, Life::kRestored);
  declaration.activation(named("out"), {most, options_.hidden}, Life::kForward);
  declaration.activation(named("dout"), {most, options_.hidden}, Life::kBackward);
  declaration.activation(named("dactive"), {most, width()}, Life::kBackward);
  declaration.statistic(named("dweights"), {most}, Life::kBackward);
  const bool balances = options_.router_loss > 0;
  declaration.statistic(named("balance"), {balances ? options_.experts : 0}, Life::kBackward);
  const bool divides = divides_experts();
  const Shape own_rows = divides ? Shape{rows, options_.hidden} : Shape{0};
  declaration.indices(named("all_counts"), {drops ? options_.experts : 0}, Life::kForward);
  declaration.indices(named("received"), {divides ? options_.experts : 0}, Life::kKept);
  declaration.activation(named("own_forward"), own_rows, Life::kForward);
  declaration.activation(named("own_backward"), own_rows, Life::kBackward);
  declaration.statistic(named("row_weights"), {divides ? most : 0}, Life::kBackward);
  declaration.statistic(named("own_dweights"), {divides ? rows : 0}, Life::kBackward);
  const Shape all = divides_tokens() ? Shape{tokens, options_.hidden} : Shape{0};
  declaration.activation(named("all_forward"), all, Life::kForward);
  declaration.activation(named("all_backward"), all, Life::kBackward);
  // A token has an expert once, so no expert has more rows of a rank than that has tokens.
  declaration.linear_in_pieces(rows, capacity, options_.hidden, 2 * width());
  declaration.linear_in_pieces(rows, capacity, width(), options_.hidden, again);
  declare_exchanges(declaration, tokens);
  if (tensor.size == 1) return;
  const DType dtype = declaration.setup().dtype;
  const std::int64_t elements = tokens * options_.hidden;
  declaration.sums(rows, DType::kF32, tensor);
  if (!divides_tokens()) {
    declaration.sums(elements, dtype, tensor, again);
    return declaration.sums(elements, dtype, tensor);
  }
  const bool restores = declaration.setup().recompute == Recompute::kSelective;
  declaration.gathers(elements, dtype, tensor, true);                 // x
  declaration.gathers(elements, dtype, tensor, again);                // y
  declaration.gathers((restores ? 4 : 3) * elements, dtype, tensor);  // dy, x again, dx
}

// The rows of an expert are a run for each rank that they come from.
template <class F>
void ExpertsPart::for_rows(const Pass& pass, std::int64_t own_expert, F&& f) const {
  const std::span<const std::int32_t> counts = counts_of_experts(pass);
  std::int64_t run = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (static_cast<std::int64_t>(i) % own_experts() == own_expert) {
      for_pieces(counts[i], [&](std::int64_t first, std::int64_t rows) { f(run + first, rows); });
    }
    run += counts[i];
  }
}

ExpertsPart::RowsOfRanks ExpertsPart::rows_of_ranks(const Pass& pass) const {
  const auto by_ranks = [&](Saved counts) {
    const std::span<const std::int32_t> of_experts = this->counts(pass, counts);
    std::vector<std::size_t> rows(static_cast<std::size_t>(options_.group.size));
    for (std::size_t i = 0; i < of_experts.size(); ++i) {
      rows[i / static_cast<std::size_t>(own_experts())] += static_cast<std::size_t>(of_experts[i]);
    }
    return rows;
  };
  return {.sent = by_ranks(kCounts), .received = by_ranks(kReceived)};
}

Tensor ExpertsPart::of_experts(const Pass& pass, Saved rows) const {
  const std::span<const std::int32_t> counts = counts_of_experts(pass);
  return tensor(pass, rows)
      .slice(0, std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
}

std::span<const std::int32_t> ExpertsPart::counts(const Pass& pass, Saved which) const {
  const Tensor& there = tensor(pass, which);
  if (there.device() == Device{}) return there.as<const std::int32_t>();
  return which == kReceived ? pass.host_counts->received : pass.host_counts->routed;
}

void ExpertsPart::read_counts(const Pass& pass, Saved which) const {
  const Tensor& there = tensor(pass, which);
  if (there.device() == Device{}) return;
  HostCounts& host = *pass.host_counts;
  std::vector<std::int32_t>& here = which == kReceived ? host.received : host.routed;
  here.resize(there.elements());
  pass.ops.in_order([&] { copy(tensor_of(std::span(here)), there); });
  pass.ops.synchronize();
}

void ExpertsPart::send(const Pass& pass, Saved tokens, Saved experts) const {
  const RowsOfRanks rows = rows_of_ranks(pass);
  pass.experts->exchange_rows(pass.ops, tensor(pass, tokens), rows.sent, tensor(pass, experts),
                              rows.received);
}

void ExpertsPart::send_back(const Pass& pass, Saved experts, Saved tokens) const {
  const RowsOfRanks rows = rows_of_ranks(pass);
  pass.experts->exchange_rows(pass.ops, tensor(pass, experts), rows.received, tensor(pass, tokens),
                              rows.sent);
}

void ExpertsPart::multiply(const Pass& pass, Matrix matrix, const Tensor& x,
                           const Tensor& y) const {
  for (std::int64_t expert = own_experts(); expert-- > 0;) {
    for_rows(pass, expert, [&](std::int64_t first, std::int64_t rows) {
      pass.ops.run(ops::Linear{.x = x.slice(first, rows),
                               .weight = parameter(pass, index_of(matrix, expert)),
                               .bias = {},
                               .residual = {},
                               .y = y.slice(first, rows)});
    });
  }
}

Tensor ExpertsPart::all_tokens(const Pass& pass, const Tensor& stream, Saved workspace) const {
  if (!divides_tokens()) return stream;
  pass.tensor->gather_rows(pass.ops, stream, tensor(pass, workspace));
  return tensor(pass, workspace);
}

Tensor ExpertsPart::own_tokens(const Tensor& all) const {
  if (!divides_tokens()) return all;
  const Extent own = share_of(all.shape()[0], options_.tensor);
  return all.slice(own.first, own.count);
}

// `all` is the stream itself where a rank has all of it.
void ExpertsPart::sum_over_ranks(const Pass& pass, const Tensor& all, const Tensor& stream) const {
  if (options_.tensor.size == 1) return;
  if (divides_tokens()) return pass.tensor->scatter_sum(pass.ops, all, stream);
  pass.tensor->sum(pass.ops, all);
}

void ExpertsPart::to_experts(const Pass& pass, const Tensor& x, Saved own, Saved rows) const {
  pass.ops.run(ops::GatherTokens{.pairs = tensor(pass, kPairs),
                                 .experts_per_token = options_.chosen,
                                 .x = x,
                                 .y = tensor(pass, divides_experts() ? own : rows)});
  if (divides_experts()) send(pass, own, rows);
}

std::int64_t ExpertsPart::capacity(const Setup& setup, std::int64_t tokens) const {
  if (setup.expert_capacity == 0) return tokens;
  const auto rows = static_cast<double>(tokens * options_.chosen);
  const double taken =
      std::ceil(setup.expert_capacity * rows / static_cast<double>(options_.experts));
  return static_cast<std::int64_t>(std::min(taken, static_cast<double>(tokens)));
}

void ExpertsPart::drop(const Pass& pass) const {
  if (pass.setup.expert_capacity == 0) return;
  const std::int64_t tokens = tensor(pass, kLogits).shape()[0];
  const auto most = static_cast<std::int32_t>(capacity(pass.setup, tokens));
  pass.ops.in_order([&] { copy(tensor(pass, kAllCounts), tensor(pass, kCounts)); });
  HostCopy of_counts(pass.ops, tensor(pass, kCounts)), of_rows(pass.ops, tensor(pass, kRows)),
      of_pairs(pass.ops, tensor(pass, kPairs)), of_weights(pass.ops, tensor(pass, kWeights));
  pass.ops.synchronize();
  const auto counts = of_counts.as<std::int32_t>();
  const auto rows = of_rows.as<std::int32_t>();
  const auto pairs = of_pairs.as<std::int32_t>();
  const auto weights = of_weights.as<float>();
  const std::vector<std::int32_t> old_pairs(pairs.begin(), pairs.end());
  const std::vector<float> old_weights(weights.begin(), weights.end());
  std::size_t next_taken = 0, next_dropped = 0, from = 0;
  for (const std::int32_t count : counts) {
    next_dropped += static_cast<std::size_t>(std::min(count, most));
  }
  for (std::int32_t& count : counts) {
    for (std::int32_t i = 0; i < count; ++i, ++from) {
      const std::size_t to = i < most ? next_taken++ : next_dropped++;
      pairs[to] = old_pairs[from];
      weights[to] = old_weights[from];
      rows[static_cast<std::size_t>(old_pairs[from])] = static_cast<std::int32_t>(to);
    }
    count = std::min(count, most);
  }
  for (const HostCopy* one : {&of_counts, &of_rows, &of_pairs, &of_weights}) {
    one->write_back(pass.ops);
  }
  pass.ops.synchronize();
}

void ExpertsPart::zero_dropped(const Pass& pass, Saved rows) const {
  if (pass.setup.expert_capacity == 0) return;
  const std::span<const std::int32_t> counts = this->counts(pass, kCounts);
  const std::int64_t taken = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t all = tensor(pass, kWeights).shape()[0];
  if (taken == all) return;
  const Tensor dropped = tensor(pass, rows).slice(taken, all - taken);
  pass.ops.in_order([&] { fill_zero(dropped); });
}

void ExpertsPart::activate(const Pass& pass) const {
  const Tensor gate_up = of_experts(pass, kGateUp);
  if (gate_up.elements() == 0) return;
  pass.ops.run(ops::SwiGlu{.gate_up = gate_up, .y = of_experts(pass, kActive)});
}

void ExpertsPart::forward_up(const Pass& pass, const Tensor& x) const {
  const Tensor all = all_tokens(pass, x, kAllForward);
  pass.ops.run(ops::Linear{.x = all,
                           .weight = parameter(pass, kRouter),
                           .bias = {},
                           .residual = {},
                           .y = tensor(pass, kLogits)});
  pass.ops.run(ops::Route{.logits = tensor(pass, kLogits),
                          .experts = tensor(pass, kExperts),
                          .rows = tensor(pass, kRows),
                          .pairs = tensor(pass, kPairs),
                          .counts = tensor(pass, kCounts),
                          .weights = tensor(pass, kWeights)});
  drop(pass);
  read_counts(pass, kCounts);
  if (divides_experts()) {
    pass.experts->exchange_counts(pass.ops, tensor(pass, kCounts), tensor(pass, kReceived));
    read_counts(pass, kReceived);
    pass.experts->throw_failure();  // before rows are counted by what did not come
  }
  to_experts(pass, all, kOwnForward, kRouted);
  multiply(pass, kUp, tensor(pass, kRouted), tensor(pass, kGateUp));
  activate(pass);
}

void ExpertsPart::forward_down(const Pass& pass, const Tensor& y, const Tensor& residual) const {
  multiply(pass, kDown, tensor(pass, kActive), tensor(pass, kOut));
  if (divides_experts()) send_back(pass, kOut, kOwnForward);
  zero_dropped(pass, divides_experts() ? kOwnForward : kOut);
  const Tensor all = divides_tokens() ? tensor(pass, kAllForward) : y;
  // What is added counts once: on the first rank, or on the one that has the token.
  const bool adds = !divides_tokens() && options_.tensor.rank == 0;
  pass.ops.run(ops::CombineTokens{.rows = tensor(pass, kRows),
                                  .weights = tensor(pass, kWeights),
                                  .routed = tensor(pass, divides_experts() ? kOwnForward : kOut),
                                  .residual = adds ? residual : Tensor(),
                                  .y = all});
  if (divides_tokens() && ops::is_given(residual)) {
    const Tensor own = own_tokens(all);
    pass.ops.run(ops::Add{.a = own, .b = residual, .y = own});
  }
  sum_over_ranks(pass, all, y);
  count(pass);
}

// Where forward is run again it has counted before; forward_down() is not called then.
void ExpertsPart::count(const Pass& pass) const {
  if (!pass.training || options_.router_loss == 0) return;
  const bool drops = pass.setup.expert_capacity > 0;
  const Tensor all = counts_in(pass.out.memory, options_.experts);
  pass.ops.run(ops::AddCounts{.counts = tensor(pass, drops ? kAllCounts : kCounts),
                              .sums = all.slice(0, options_.experts)});
}

void ExpertsPart::restore(const Pass& pass, const Tensor& x) const {
  to_experts(pass, all_tokens(pass, x, kAllBackward), kOwnBackward, kRouted);
  activate(pass);
}

Tensor ExpertsPart::backward_down(const Pass& pass, const Tensor& dy) const {
  const Tensor& dout = tensor(pass, kDOut);
  const Tensor& active = tensor(pass, kActive);
  const Tensor& dactive = tensor(pass, kDActive);
  to_experts(pass, all_tokens(pass, dy, kAllBackward), kOwnBackward, kDOut);
  for (std::int64_t expert = own_experts(); expert-- > 0;) {
    for_rows(pass, expert, [&](std::int64_t first, std::int64_t rows) {
      pass.ops.run(ops::LinearBackwardInput{.dy = dout.slice(first, rows),
                                            .weight = parameter(pass, index_of(kDown, expert)),
                                            .factor = {},
                                            .dx = dactive.slice(first, rows)});
    });
  }
  weight_rows(pass);
  for (std::int64_t expert = own_experts(); expert-- > 0;) {
    const std::size_t index = index_of(kDown, expert);
    for_rows(pass, expert, [&](std::int64_t first, std::int64_t rows) {
      pass.ops.run(ops::LinearBackwardWeight{.dy = dout.slice(first, rows),
                                             .x = active.slice(first, rows),
                                             .dweight = gradient(pass, index),
                                             .dbias = {}});
    });
    finished(pass, index);
  }
  const Tensor gate_up = of_experts(pass, kGateUp);
  if (gate_up.elements() > 0) {
    pass.ops.run(ops::SwiGluBackward{
        .gate_up = gate_up, .dy = of_experts(pass, kDActive), .dgate_up = gate_up});
  }
  return tensor(pass, kGateUp);
}

void ExpertsPart::weight_rows(const Pass& pass) const {
  if (divides_experts()) send(pass, kWeights, kRowWeights);
  const Tensor weights = of_experts(pass, divides_experts() ? kRowWeights : kWeights);
  if (weights.elements() > 0) {
    pass.ops.run(ops::WeightRows{.weights = weights,
                                 .x = of_experts(pass, kActive),
                                 .dx = of_experts(pass, kDActive),
                                 .dweights = of_experts(pass, kDWeights)});
  }
  if (divides_experts()) send_back(pass, kDWeights, kOwnDWeights);
  zero_dropped(pass, divides_experts() ? kOwnDWeights : kDWeights);
  if (options_.tensor.size > 1) pass.tensor->sum(pass.ops, dweights_of_tokens(pass));
}

const Tensor& ExpertsPart::dweights_of_tokens(const Pass& pass) const {
  return tensor(pass, divides_experts() ? kOwnDWeights : kDWeights);
}

void ExpertsPart::backward_up(const Pass& pass, const LinearPart::Backward& arguments) const {
  const Tensor& routed = tensor(pass, kRouted);
  for (std::int64_t expert = own_experts(); expert-- > 0;) {
    const std::size_t index = index_of(kUp, expert);
    for_rows(pass, expert, [&](std::int64_t first, std::int64_t rows) {
      const Tensor dy = arguments.dy.slice(first, rows);
      const Tensor x = routed.slice(first, rows);
      pass.ops.run(ops::LinearBackwardWeight{
          .dy = dy, .x = x, .dweight = gradient(pass, index), .dbias = {}});
      // The rows are not needed any more.
      pass.ops.run(ops::LinearBackwardInput{
          .dy = dy, .weight = parameter(pass, index), .factor = {}, .dx = x});
    });
    finished(pass, index);
  }
  if (divides_experts()) send_back(pass, kRouted, kOwnBackward);
  zero_dropped(pass, divides_experts() ? kOwnBackward : kRouted);
  backward_router(pass, all_tokens(pass, arguments.x, kAllBackward));
  const Tensor all = divides_tokens() ? tensor(pass, kAllBackward) : arguments.dx;
  pass.ops.run(ops::CombineTokens{.rows = tensor(pass, kRows),
                                  .weights = {},
                                  .routed = divides_experts() ? tensor(pass, kOwnBackward) : routed,
                                  .residual = {},
                                  .y = all});
  // All ranks have what comes through the router; in the sum it counts once.
  if (options_.tensor.rank == 0) {
    pass.ops.run(ops::LinearBackwardInput{.dy = tensor(pass, kLogits),
                                          .weight = parameter(pass, kRouter),
                                          .factor = {},
                                          .dx = all,
                                          .accumulate = true});
  }
  sum_over_ranks(pass, all, arguments.dx);
  finished(pass, kRouter);
}

// dlogits take the place of logits.
void ExpertsPart::backward_router(const Pass& pass, const Tensor& x) const {
  const Tensor& logits = tensor(pass, kLogits);
  pass.ops.run(ops::RouteBackward{.logits = logits,
                                  .experts = tensor(pass, kExperts),
                                  .rows = tensor(pass, kRows),
                                  .weights = tensor(pass, kWeights),
                                  .dweights = dweights_of_tokens(pass),
                                  .balance = balance(pass),
                                  .dlogits = logits});
  const ops::LinearBackwardWeight weight{
      .dy = logits, .x = x, .dweight = gradient(pass, kRouter), .dbias = {}};
  if (pass.weight_gradients != nullptr) {
    pass.weight_gradients->add(pass.ops, weight);
  } else {
    pass.ops.run(weight);
  }
}

Tensor ExpertsPart::balance(const Pass& pass) const {
  if (options_.router_loss == 0) return {};
  // The counts are of all layers, and of all ranks of a context group.
  pass.ops.run(ops::BalanceExperts{
      .counts = counts_in(pass.dout.memory, options_.experts),
      .experts_per_token = options_.chosen,
      .coefficient = options_.router_loss * static_cast<double>(options_.experts),
      .factor = pass.loss_factor,
      .balance = tensor(pass, kBalance)});
  return tensor(pass, kBalance);
}

Tensor ExpertsPart::spent(const Pass& pass) const { return tensor(pass, kGateUp); }

}  // namespace lockstep::nn
