#include "lockstep/nn/parts/relative_bias.h"

#include <utility>

#include "lockstep/nn/parts/head_exchange.h"

namespace lockstep::nn {

void declare_bias_table(Declaration& declaration, std::string name,
                        const BiasTableOptions& options) {
  const std::int64_t heads = options.heads / options.tensor.size;
  declaration.weight(std::move(name), options.buckets.count, heads, options.stddev);
  declaration.shard(shard_of(1, {options.heads}, options.tensor));
}

void RelativeBiasPart::declare(Declaration& declaration) const {
  declare_bias_table(
      declaration, named("table"),
      {.buckets = options_.buckets, .heads = options_.heads, .tensor = options_.tensor});
  declaration.tie(options_.bias_table);
  const Shape shape{heads(declaration.setup()).count, options_.buckets.distances()};
  declaration.statistic(named("of_distances"), shape, Life::kKept);
  declaration.statistic(named("gradient"), shape, Life::kBackward);
}

Extent RelativeBiasPart::heads(const Setup& setup) const {
  if (!HeadExchangePart::is_used(setup)) return {0, options_.own_heads()};
  const std::int64_t count = options_.own_heads() / setup.context.size;
  return {setup.context.rank * count, count};
}

void RelativeBiasPart::forward(const Pass& pass) const {
  pass.ops.run(ops::RelativeBias{.buckets = options_.buckets,
                                 .table = parameter(pass, kTable),
                                 .first_head = heads(pass.setup).first,
                                 .bias = bias(pass)});
}

void RelativeBiasPart::backward(const Pass& pass) const {
  pass.ops.run(ops::RelativeBiasBackward{.buckets = options_.buckets,
                                         .dbias = dbias(pass),
                                         .first_head = heads(pass.setup).first,
                                         .dtable = gradient(pass, kTable)});
  finished(pass, kTable);
}

}  // namespace lockstep::nn
