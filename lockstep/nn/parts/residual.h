// How branches join the residual stream, and how its gradient enters them.
#pragma once

#include <string_view>

#include "lockstep/nn/parts/attention_options.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

// What this rank has of the residual stream of a layer with that attention.
Shape stream_of(const Setup& setup, const AttentionOptions& attention);
// The dropout of a branch of the layer, for what this rank has of the stream.
ops::Dropout branch_dropout(const Pass& pass, const AttentionOptions& attention, double probability,
                            std::string_view branch);

// out = x + dropout(the end of a feed-forward network). Without dropout in one product.
template <class FeedForward>
void add_feed_forward(const Pass& pass, const FeedForward& network, const Tensor& x,
                      const ops::Dropout& dropout, const Tensor& out) {
  if (dropout.probability == 0) return network.forward_down(pass, out, x);
  network.forward_down(pass, out);
  pass.ops.run(ops::Drop{.dropout = dropout, .x = out, .y = out});
  pass.ops.run(ops::Add{.a = x, .b = out, .y = out});
}

// The gradient of a branch: dropout(dsum), made in `workspace`, or dsum itself without dropout.
inline Tensor dropped_gradient(const Pass& pass, const ops::Dropout& dropout, const Tensor& dsum,
                               const Tensor& workspace) {
  if (dropout.probability == 0) return dsum;
  pass.ops.run(ops::Drop{.dropout = dropout, .x = dsum, .y = workspace});
  return workspace;
}

}  // namespace lockstep::nn
