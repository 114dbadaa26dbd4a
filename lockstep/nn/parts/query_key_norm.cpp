#include "lockstep/nn/parts/query_key_norm.h"

namespace lockstep::nn {

void QueryKeyNormPart::declare(Declaration& declaration, std::int64_t rows) const {
  declaration.gain(named("query_norm.gain"), options_.head_size());
  declaration.gain(named("key_norm.gain"), options_.head_size());
  declaration.activation(named("unnormed"), {rows, options_.query_width() + options_.kv_width()},
                         Life::kKept);
  declaration.statistic(named("query_rstd"), {rows, options_.own_heads()}, Life::kKept);
  declaration.statistic(named("key_rstd"), {rows, options_.own_kv_heads()}, Life::kKept);
  declaration.norm(rows, options_.head_size());
  const bool divides = options_.tensor.size > 1;
  declaration.gradient(named("own_gradients"), {divides ? 2 : 0, options_.head_size()});
  if (divides) {
    declaration.sums(2 * options_.head_size(), declaration.setup().gradient, options_.tensor);
  }
}

void QueryKeyNormPart::forward(const Pass& pass, const Normed& side, const ops::Heads& x) const {
  const Tensor& rstd = tensor(pass, side.rstd);
  pass.ops.run(ops::HeadNorm{.heads = side.heads,
                             .head_size = options_.head_size(),
                             .epsilon = *options_.qk_norm,
                             .x = x,
                             .gain = parameter(pass, side.gain),
                             .y = x,
                             .rstd = rstd.slice(0, x.rows.shape()[0])});
}

void QueryKeyNormPart::forward_queries(const Pass& pass, const ops::Heads& queries) const {
  forward(pass, this->queries(), queries);
}

void QueryKeyNormPart::forward_keys(const Pass& pass, const ops::Heads& keys) const {
  forward(pass, this->keys(), keys);
}

void QueryKeyNormPart::forward(const Pass& pass, const Tensor& packed) const {
  if (pass.training) {
    pass.ops.run(ops::CopyColumns{.from = {packed, 0},
                                  .to = {tensor(pass, kBefore), 0},
                                  .columns = options_.query_width() + options_.kv_width()});
  }
  for (const Normed& side : {queries(), keys()}) forward(pass, side, {packed, side.first});
}

void QueryKeyNormPart::backward(const Pass& pass, const Normed& side, const Tensor& dpacked) const {
  const bool divides = options_.tensor.size > 1;
  const Tensor& gain = gradient(pass, side.gain);
  const ops::Heads dx{dpacked, side.first};
  pass.ops.run(
      ops::HeadNormBackward{.heads = side.heads,
                            .head_size = options_.head_size(),
                            .x = {tensor(pass, kBefore), side.first},
                            .gain = parameter(pass, side.gain),
                            .rstd = tensor(pass, side.rstd),
                            .dy = dx,
                            .dx = dx,
                            .dgain = divides ? tensor(pass, kOwnGradients).row(side.gain) : gain});
}

void QueryKeyNormPart::backward(const Pass& pass, const Tensor& dpacked) const {
  const Tensor& own = tensor(pass, kOwnGradients);
  const bool divides = options_.tensor.size > 1;
  if (divides) pass.ops.in_order([&] { fill_zero(own); });
  for (const Normed& side : {queries(), keys()}) backward(pass, side, dpacked);
  if (divides) pass.tensor->sum(pass.ops, own);
  for (const Parameter which : {kQueryGain, kKeyGain}) {
    const Tensor& gain = gradient(pass, which);
    if (divides) pass.ops.run(ops::Add{.a = gain, .b = own.row(which), .y = gain});
    finished(pass, which);
  }
}

}  // namespace lockstep::nn
