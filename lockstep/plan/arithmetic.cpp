#include "lockstep/plan/arithmetic.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

constexpr Count kTokenTypes = 2;
constexpr double kSecondsPerDay = 24 * 60 * 60;

// One a layer; in a decoder one more, to the encoder.
Count attentions(const ModelShape& shape) {
  return sum({shape.layers, product({2, shape.decoder_layers})});
}

Count norm(const ModelShape& shape) {
  const bool has_bias = !shape.parts().rms_norm && shape.biases;
  return product({has_bias ? Count{2} : Count{1}, shape.hidden});
}

// Query and output are as wide as the query heads, h if not set otherwise; key and value as theirs.
Count attention_matrices(const ModelShape& shape) {
  return product({2, shape.hidden, sum({shape.query_width(), shape.kv_width()})});
}

// Of `experts` experts and their router, in mixtral.
Count feed_forward_matrices(const ModelShape& shape, Count experts) {
  const Count matrices = shape.parts().gated ? 3 : 2;
  const Count network = product({matrices, shape.hidden, shape.feed_forward});
  if (!shape.has_experts()) return network;
  return sum({product({experts, network}), product({shape.experts, shape.hidden})});
}

Count attention(const ModelShape& shape) {
  const Count qkv_biases = sum({shape.query_width(), product({2, shape.kv_width()})});
  return sum({attention_matrices(shape), shape.has_qkv_biases() ? qkv_biases : 0,
              shape.biases ? shape.hidden : 0});
}

Count feed_forward(const ModelShape& shape) {
  const Count inner = shape.parts().gated ? 2 : 1;
  const Count biases = sum({product({inner, shape.feed_forward}), shape.hidden});
  return sum({feed_forward_matrices(shape, shape.experts), shape.biases ? biases : 0});
}

Count dense(const ModelShape& shape) {
  return sum({product({shape.hidden, shape.hidden}), shape.biases ? shape.hidden : 0});
}

Count head(const ModelShape& shape) {
  switch (shape.head) {
    case Head::kTied:
      return 0;
    case Head::kOwn:
      return product({shape.vocabulary, shape.hidden});
    case Head::kMaskedLanguage:
      return sum({dense(shape), norm(shape), shape.vocabulary});
    case Head::kPooler:
      return dense(shape);
  }
  return 0;
}

Count head_matrices(const ModelShape& shape) {
  const Count logits = product({shape.vocabulary, shape.hidden});
  switch (shape.head) {
    case Head::kTied:
    case Head::kOwn:
      return logits;
    case Head::kMaskedLanguage:
      return sum({product({shape.hidden, shape.hidden}), logits});
    case Head::kPooler:
      return 0;
  }
  return 0;
}

}  // namespace

Count Parameters::total() const {
  return sum({embedding, positions, token_types, attention, feed_forward, norms, head});
}

Parameters count_parameters(const ModelShape& shape) {
  check(shape);
  Parameters parameters;
  parameters.embedding = product({shape.vocabulary, shape.hidden});
  if (shape.learns_positions()) parameters.positions = product({shape.positions, shape.hidden});
  if (shape.family == Family::kBert) parameters.token_types = product({kTokenTypes, shape.hidden});
  parameters.attention = product({attentions(shape), attention(shape)});
  parameters.feed_forward = product({shape.all_layers(), feed_forward(shape)});
  // One before each attention and feed-forward, in gemma2 one behind it too, and one outside: after
  // the last layer of a stack, or BERT's after the embedding.
  const Count stacks = shape.is_encoder_decoder() ? 2 : 1;
  if (shape.parts().relative_bias) {
    parameters.positions = product({shape.relative_buckets, shape.heads});
  }
  if (stacks == 2) parameters.positions = product({2, parameters.positions});
  const Count branches = sum({attentions(shape), shape.all_layers()});
  const Count norms = shape.parts().sandwich ? product({2, branches}) : branches;
  parameters.norms = product({sum({norms, stacks}), norm(shape)});
  if (shape.parts().qk_norm) {
    parameters.norms = sum({parameters.norms, product({shape.layers, 2, shape.head_width()})});
  }
  parameters.head = head(shape);
  parameters.total();  // beyond 64 bits is refused here, not later
  return parameters;
}

std::string_view name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kFull:
      return "full";
    case Recompute::kAttention:
      return "attention";
  }
  return "?";
}

double TokenFlops::recomputed(Recompute recompute) const {
  switch (recompute) {
    case Recompute::kNone:
    case Recompute::kSelective:
      return 0;
    case Recompute::kAttention:
      return attention;
    case Recompute::kFull:
      return layers + attention;
  }
  return 0;
}

TokenFlops count_flops(const ModelShape& shape, Count sequence) {
  check(shape);
  const auto real = [](Count count) { return static_cast<double>(count); };
  const Count matrices =
      sum({product({attentions(shape), attention_matrices(shape)}),
           product({shape.all_layers(), feed_forward_matrices(shape, shape.experts_per_token)})});
  TokenFlops flops;
  flops.layers = 2 * real(matrices);
  const Count windowed = shape.windowed_layers();
  const Count seen = std::min(shape.window, sequence);
  flops.attention =
      4 * real(shape.query_width()) *
      (real(attentions(shape) - windowed) * real(sequence) + real(windowed) * real(seen));
  flops.head = 2 * real(head_matrices(shape));
  return flops;
}

double rule_of_thumb_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

double gpus_needed(double flops, double days, double flops_per_gpu) {
  return flops / (flops_per_gpu * days * kSecondsPerDay);
}

double days_needed(double flops, double gpus, double flops_per_gpu) {
  return flops / (flops_per_gpu * gpus) / kSecondsPerDay;
}

Count whole_gpus(double gpus) {
  // A rounding error above a whole number is not one more GPU.
  constexpr double kRounding = 1e-12;
  constexpr double kMost = 1e15;
  if (!(gpus <= kMost)) {
    fail(ErrorCode::kInvalidArgument,
         "this would take {:.3g} GPUs; check the tokens, the days and what a GPU sustains", gpus);
  }
  return static_cast<Count>(std::ceil(gpus * (1 - kRounding)));
}

}  // namespace lockstep::plan
