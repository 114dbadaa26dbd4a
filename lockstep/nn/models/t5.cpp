#include "lockstep/nn/models/t5.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/nn/blocks/bias_table.h"
#include "lockstep/nn/blocks/decoder_layer.h"
#include "lockstep/nn/blocks/decoder_start.h"
#include "lockstep/nn/blocks/embedding.h"
#include "lockstep/nn/blocks/language_head.h"
#include "lockstep/nn/blocks/pre_norm_layer.h"

namespace lockstep::nn {
namespace {

class T5Maker {
 public:
  T5Maker(const plan::ModelShape& shape, const ModelOptions& options)
      : shape_(shape), options_(options) {}

  std::vector<std::unique_ptr<Block>> run() {
    EmbeddingOptions embedding = {.vocabulary = to_signed(shape_.vocabulary),
                                  .positions = 0,
                                  .types = 0,
                                  .hidden = to_signed(shape_.hidden),
                                  .stddev = 1,
                                  .dropout = options_.dropout,
                                  .tied_to = {},
                                  .side = Side::kSource,
                                  .tensor = options_.tensor};
    blocks_.push_back(std::make_unique<Embedding>("source", embedding));
    add_stack("encoder", Side::kSource, shape_.layers);
    embedding.side = Side::kTarget;
    embedding.tied_to = kTokenTable;
    blocks_.push_back(std::make_unique<DecoderStart>("target", embedding, norm()));
    add_stack("decoder", Side::kTarget, shape_.decoder_layers);
    blocks_.push_back(std::make_unique<LanguageHead>("head", norm(), classifier()));
    return std::move(blocks_);
  }

 private:
  static constexpr const char* kTokenTable = "source.tokens";

  static std::int64_t to_signed(plan::Count count) { return static_cast<std::int64_t>(count); }
  static double root(plan::Count count) { return std::sqrt(static_cast<double>(count)); }

  NormOptions norm() const {
    return {.kind = ops::NormKind::kRms,
            .epsilon = options_.epsilon.value_or(usual_epsilon(shape_.family)),
            .width = to_signed(shape_.hidden),
            .bias = false,
            .tensor = options_.tensor};
  }

  ClassifierOptions classifier() const {
    const bool tied = shape_.head == plan::Head::kTied;
    if (!tied && shape_.head != plan::Head::kOwn) {
      fail(ErrorCode::kUnsupported,
           "a model of family {} cannot be trained with the head '{}'; take tied or own instead",
           name(shape_.family), name(shape_.head));
    }
    return {.hidden = to_signed(shape_.hidden),
            .classes = to_signed(shape_.vocabulary),
            .tied_to = tied ? kTokenTable : "",
            .bias = false,
            .stddev = 1 / root(shape_.hidden),
            .tensor = options_.tensor,
            .scale = tied ? 1 / root(shape_.hidden) : 1};
  }

  void add_stack(const std::string& stack, Side side, plan::Count layers) {
    const BiasTableOptions table = {.buckets = {.count = to_signed(shape_.relative_buckets),
                                                .max_distance = to_signed(shape_.relative_distance),
                                                .bidirectional = side == Side::kSource},
                                    .heads = to_signed(shape_.heads),
                                    .stddev = 1 / root(shape_.hidden),
                                    .tensor = options_.tensor};
    auto block =
        std::make_unique<BiasTable>(stack + ".bias", table, to_signed(shape_.hidden), side);
    AttentionOptions attention = attention_of(side);
    attention.bias_table = block->table();
    attention.buckets = table.buckets;
    blocks_.push_back(std::move(block));
    for (plan::Count i = 0; i < layers; ++i) {
      const std::string name = stack + "." + std::to_string(i);
      if (shape_.parts().gated) {
        add_layer<SwiGluPart>(name, attention, gated());
      } else {
        add_layer<FeedForwardPart>(name, attention, two_matrices());
      }
    }
  }

  template <class FeedForward>
  void add_layer(const std::string& name, const AttentionOptions& attention,
                 const typename FeedForward::Options& feed_forward) {
    const LayerOptionsWith<FeedForward> layer = {.norm = norm(),
                                                 .attention = attention,
                                                 .feed_forward = feed_forward,
                                                 .dropout = options_.dropout};
    if (attention.side == Side::kSource) {
      blocks_.push_back(std::make_unique<PreNormLayer<FeedForward>>(name, layer));
    } else {
      blocks_.push_back(std::make_unique<DecoderLayer<FeedForward>>(name, layer));
    }
  }

  AttentionOptions attention_of(Side side) const {
    const double smaller = std::sqrt(root(shape_.head_width()));
    return {.hidden = to_signed(shape_.hidden),
            .heads = to_signed(shape_.heads),
            .kv_heads = to_signed(shape_.kv_heads),
            .head_width = to_signed(shape_.head_width()),
            .causal = side == Side::kTarget,
            .biases = false,
            .dropout = options_.dropout,
            .stddev = 1 / root(shape_.hidden) / smaller,
            .projection_stddev = smaller / root(shape_.query_width()),
            .scale_width = 1,
            .side = side,
            .tensor = options_.tensor};
  }

  FeedForwardOptions two_matrices() const {
    return {.hidden = to_signed(shape_.hidden),
            .width = to_signed(shape_.feed_forward),
            .activation = options_.activation.value_or(usual_activation(shape_.family)),
            .biases = false,
            .stddev = 1 / root(shape_.hidden),
            .down_stddev = 1 / root(shape_.feed_forward),
            .tensor = options_.tensor};
  }

  SwiGluOptions gated() const {
    return {.hidden = to_signed(shape_.hidden),
            .width = to_signed(shape_.feed_forward),
            .biases = false,
            .stddev = 1 / root(shape_.hidden),
            .down_stddev = 1 / root(shape_.feed_forward),
            .tensor = options_.tensor,
            .gate = ops::Gate::kGeluTanh};
  }

  const plan::ModelShape& shape_;
  const ModelOptions& options_;
  std::vector<std::unique_ptr<Block>> blocks_;
};

}  // namespace

Model make_t5(const plan::ModelShape& shape, const ModelOptions& options) {
  return {shape.name, T5Maker(shape, options).run()};
}

}  // namespace lockstep::nn
