#include "lockstep/nn/parts/ring_attention.h"

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/nn/parameters/seed.h"

namespace lockstep::nn {

int RingAttentionPart::owner_of(const Setup& setup, int step) {
  const ContextGroup& group = setup.context;
  return (group.rank + group.size - step) % group.size;
}

std::vector<RingAttentionPart::Pair> RingAttentionPart::pairs_of(const Setup& setup,
                                                                 int owner) const {
  const ContextGroup& group = setup.context;
  const std::vector<TokenRun> runs = token_runs(group, tokens(setup));
  std::vector<Pair> pairs;
  for (std::int64_t sequence = 0; sequence < setup.shape.batch; ++sequence) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      Pair pair{.sequence = sequence, .queries = runs[i], .run = i, .keys = tokens(setup)};
      if (options_.causal) {
        const bool own = owner == group.rank;
        pair.causal = own;
        if (own) pair.keys = runs[i].local + runs[i].count;
        if (owner < group.rank) pair.keys = runs[0].count;
        if (owner > group.rank && i == 0) continue;
      }
      pairs.push_back(pair);
    }
  }
  return pairs;
}

ops::AttentionShape RingAttentionPart::shape(const Setup& setup, const Pair& pair) const {
  return {.batch = 1,
          .queries = pair.queries.count,
          .keys = pair.keys,
          .heads = options_.own_heads(),
          .kv_heads = options_.own_kv_heads(),
          .head_size = options_.head_size(),
          .causal = pair.causal,
          .dtype = setup.dtype};
}

Shape RingAttentionPart::log_sum(const Setup& setup) const {
  const auto runs = static_cast<std::int64_t>(token_runs(setup.context, tokens(setup)).size());
  return {setup.shape.batch, runs, options_.own_heads(), tokens(setup) / runs};
}

void RingAttentionPart::declare(Declaration& declaration) const {
  const Setup& setup = declaration.setup();
  const bool used = is_used(setup);
  const std::int64_t rows = used ? tokens_of(setup.shape, options_.side) : 0;
  const std::int64_t own = used ? tokens(setup) : 0;
  const std::int64_t queries = used ? token_runs(setup.context, own)[0].count : 0;
  const std::int64_t both = 2 * options_.kv_width();
  const auto shape = [used](std::int64_t first, std::int64_t second) {
    return used ? Shape{first, second} : Shape{0};
  };
  const Shape travelling = shape(rows, both);
  const bool sums_elsewhere = used && setup.dtype != DType::kF32;
  declaration.activation(named("keys_values"), travelling, Life::kForward);
  declaration.activation(named("next_keys_values"), travelling, Life::kForward);
  declaration.activation(named("more"), shape(queries, options_.query_width()), Life::kForward);
  declaration.statistic(named("more_log_sum"), shape(options_.own_heads(), queries),
                        Life::kForward);
  declaration.statistic(named("sum"),
                        sums_elsewhere ? Shape{rows, options_.query_width()} : Shape{0},
                        Life::kForward);
  declaration.bytes(named("mask"), shape(1, own), Life::kForward);
  declaration.activation(named("backward_keys_values"), travelling, Life::kBackward);
  declaration.activation(named("backward_next_keys_values"), travelling, Life::kBackward);
  declaration.statistic(named("dkeys_values"), travelling, Life::kBackward);
  declaration.statistic(named("next_dkeys_values"), travelling, Life::kBackward);
  declaration.activation(named("dsome_keys_values"), shape(own, both), Life::kBackward);
  declaration.activation(named("dsome_queries"), shape(queries, options_.query_width()),
                         Life::kBackward);
  declaration.statistic(named("dqueries"), shape(rows, options_.query_width()), Life::kBackward);
  declaration.bytes(named("backward_mask"), shape(1, own), Life::kBackward);
  if (!used) return;
  for (int step = 0; step < setup.context.size; ++step) {
    for (const Pair& pair : pairs_of(setup, owner_of(setup, step))) {
      declaration.attention_scratch(this->shape(setup, pair));
    }
  }
  const auto ranks = static_cast<std::uint64_t>(setup.context.size);
  const std::uint64_t bytes = Tensor::bytes_of(setup.dtype, travelling);
  declaration.sends_in_forward((ranks - 1) * bytes);
  declaration.sends_in_backward((ranks - 1) * bytes +
                                ranks * Tensor::bytes_of(DType::kF32, travelling));
}

Tensor RingAttentionPart::query_rows(const Setup& setup, const Pair& pair,
                                     const Tensor& rows) const {
  return rows.slice(pair.sequence * tokens(setup) + pair.queries.local, pair.queries.count);
}

Tensor RingAttentionPart::key_rows(const Setup& setup, const Pair& pair, const Tensor& rows) const {
  return rows.slice(pair.sequence * tokens(setup), pair.keys);
}

ops::Dropout RingAttentionPart::dropout(const Pass& pass, const Pair& pair, int owner) const {
  ops::Dropout dropout =
      dropout_of(pass, options_, named("probabilities"), shape(pass.setup, pair));
  if (dropout.probability == 0) return dropout;
  const auto number = static_cast<std::uint64_t>(pair.sequence * pass.setup.context.size + owner);
  dropout.seed = seed_for(dropout.seed, 2 * number + pair.run);
  return dropout;
}

Tensor RingAttentionPart::mask(const Pass& pass, const Pair& pair, int owner,
                               const Tensor& memory) const {
  const Tensor& whole = mask_of(pass.batch, options_.side);
  if (!ops::is_given(whole)) return {};
  ContextGroup group = pass.setup.context;
  group.rank = owner;
  const Tensor sequence = whole.row(pair.sequence);
  const Tensor own = memory.reshaped({tokens(pass.setup)});
  pass.ops.in_order([&] {
    for (const TokenRun& run : token_runs(group, tokens(pass.setup))) {
      copy(own.slice(run.local, run.count), sequence.slice(run.position, run.count));
    }
  });
  return own.slice(0, pair.keys).reshaped({1, pair.keys});
}

void RingAttentionPart::pack(const Pass& pass, const Tensor& packed,
                             const Tensor& keys_values) const {
  pass.ops.run(ops::CopyColumns{.from = {packed, options_.query_width()},
                                .to = {keys_values, 0},
                                .columns = 2 * options_.kv_width()});
}

void RingAttentionPart::attend(const Pass& pass, const Pair& pair, int owner, const Tensor& packed,
                               const Tensor& keys_values, const Tensor& sum,
                               const Tensor& log_sum) const {
  const Setup& setup = pass.setup;
  const bool first = owner == setup.context.rank;
  const Tensor out = query_rows(setup, pair, sum);
  const Tensor total = log_sum.row(pair.sequence).row(static_cast<std::int64_t>(pair.run));
  // The first result of a run needs no merging.
  const Tensor more = first && out.dtype() == setup.dtype ? out : tensor(pass, kMore);
  const Tensor more_log_sum = first ? total : tensor(pass, kMoreLogSum);
  const Tensor keys = key_rows(setup, pair, keys_values);
  pass.ops.run(ops::Attention{
      .shape = shape(setup, pair),
      .scale = options_.scale(),
      .softcap = options_.softcap,
      .q = {query_rows(setup, pair, packed), 0},
      .k = {keys, 0},
      .v = {keys, options_.kv_width()},
      .key_mask = mask(pass, pair, owner, tensor(pass, kMask)),
      .dropout = dropout(pass, pair, owner),
      .out = more,
      .log_sum = more_log_sum.reshaped({1, options_.own_heads(), pair.queries.count}),
      .probabilities = {}});
  if (!first) {
    pass.ops.run(ops::MergeAttention{.heads = options_.own_heads(),
                                     .more = more,
                                     .more_log_sum = more_log_sum,
                                     .out = out,
                                     .log_sum = total});
  } else if (out.dtype() != setup.dtype) {
    pass.ops.run(ops::Cast{.from = more, .to = out});
  }
}

void RingAttentionPart::forward(const Pass& pass, const Tensor& packed, const Tensor& attended,
                                const Tensor& log_sum) const {
  const Setup& setup = pass.setup;
  const Tensor& sum = setup.dtype == DType::kF32 ? attended : tensor(pass, kSum);
  Tensor keys_values = tensor(pass, kKeysValues);
  Tensor next = tensor(pass, kNextKeysValues);
  pack(pass, packed, keys_values);
  for (int step = 0; step < setup.context.size; ++step) {
    const int owner = owner_of(setup, step);
    std::optional<ContextAxis::Messages> messages;
    if (step + 1 < setup.context.size) {
      messages.emplace(pass.context->pass_on(pass.ops, keys_values, next));
    }
    for (const Pair& pair : pairs_of(setup, owner)) {
      attend(pass, pair, owner, packed, keys_values, sum, log_sum);
    }
    if (messages) messages->wait();
    std::swap(keys_values, next);
  }
  if (setup.dtype != DType::kF32) pass.ops.run(ops::Cast{.from = sum, .to = attended});
}

void RingAttentionPart::differentiate(const Pass& pass, const Pair& pair, int owner,
                                      const Backward& arguments, const Tensor& keys_values) const {
  const Setup& setup = pass.setup;
  const Tensor keys = key_rows(setup, pair, keys_values);
  const Tensor log_sum =
      arguments.log_sum.row(pair.sequence).row(static_cast<std::int64_t>(pair.run));
  const Tensor dkeys = tensor(pass, kDSomeKeysValues).slice(0, pair.keys);
  const Tensor& dqueries = tensor(pass, kDSomeQueries);
  pass.ops.run(ops::AttentionBackward{
      .shape = shape(setup, pair),
      .scale = options_.scale(),
      .softcap = options_.softcap,
      .q = {query_rows(setup, pair, arguments.packed), 0},
      .k = {keys, 0},
      .v = {keys, options_.kv_width()},
      .key_mask = mask(pass, pair, owner, tensor(pass, kBackwardMask)),
      .dropout = dropout(pass, pair, owner),
      .out = query_rows(setup, pair, arguments.attended),
      .log_sum = log_sum.reshaped({1, options_.own_heads(), pair.queries.count}),
      .dout = query_rows(setup, pair, arguments.dattended),
      .dq = {dqueries, 0},
      .dk = {dkeys, 0},
      .dv = {dkeys, options_.kv_width()}});
  pass.ops.run(ops::CopyColumns{.from = {dqueries, 0},
                                .to = {query_rows(setup, pair, tensor(pass, kDQueries)), 0},
                                .columns = options_.query_width(),
                                .accumulate = owner != setup.context.rank});
}

void RingAttentionPart::backward(const Pass& pass, const Backward& arguments) const {
  const Setup& setup = pass.setup;
  const std::int64_t both = 2 * options_.kv_width();
  Tensor keys_values = tensor(pass, kBackwardKeysValues);
  Tensor next = tensor(pass, kBackwardNextKeysValues);
  Tensor sums = tensor(pass, kDKeysValues);  // of the gradients of keys_values
  Tensor next_sums = tensor(pass, kDNextKeysValues);
  pack(pass, arguments.packed, keys_values);
  pass.ops.in_order([&] { fill_zero(sums); });
  std::optional<ContextAxis::Messages> travelling;  // sums of the step before
  for (int step = 0; step < setup.context.size; ++step) {
    const int owner = owner_of(setup, step);
    std::optional<ContextAxis::Messages> messages;
    if (step + 1 < setup.context.size) {
      messages.emplace(pass.context->pass_on(pass.ops, keys_values, next));
    }
    const auto await_sums = [&] {
      if (travelling) travelling->wait();
      travelling.reset();
    };
    for (const Pair& pair : pairs_of(setup, owner)) {
      differentiate(pass, pair, owner, arguments, keys_values);
      await_sums();
      pass.ops.run(ops::CopyColumns{.from = {tensor(pass, kDSomeKeysValues).slice(0, pair.keys), 0},
                                    .to = {key_rows(setup, pair, sums), 0},
                                    .columns = both,
                                    .accumulate = true});
    }
    await_sums();  // where no pair did
    travelling.emplace(pass.context->pass_on(pass.ops, sums, next_sums));
    std::swap(sums, next_sums);
    if (messages) messages->wait();
    std::swap(keys_values, next);
  }
  travelling->wait();
  pass.ops.run(ops::CopyColumns{.from = {tensor(pass, kDQueries), 0},
                                .to = {arguments.dpacked, 0},
                                .columns = options_.query_width()});
  pass.ops.run(ops::CopyColumns{
      .from = {sums, 0}, .to = {arguments.dpacked, options_.query_width()}, .columns = both});
}

}  // namespace lockstep::nn
