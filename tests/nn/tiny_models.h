// A small model of every family, batches for them, and replicas that run them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/nn/replica/replica.h"

namespace lockstep::nn {

// The odd ones are of their family with everything that can be otherwise: GPT-2 without biases,
// with a head of its own and shared key heads, Llama with biases, with a tied head, without
// shared ones and with heads that are together wider than the hidden size, Mixtral with all experts
// for every token and with narrow heads; all with feed-forward networks that are narrower than
// attention. Qwen3's second layer has a window, and Gemma 2's first; its soft caps are so low that
// they matter. T5 is of version 1.1, with heads that are together wider than the hidden size and a
// tied head.
enum class Tiny {
  kGpt2,
  kOddGpt2,
  kLlama,
  kOddLlama,
  kBert,
  kMixtral,
  kOddMixtral,
  kQwen3,
  kGptNeox,
  kGemma2,
  kEncoderDecoder,
  kT5,
  kLinear
};
inline constexpr Tiny kAllTiny[] = {
    Tiny::kGpt2,           Tiny::kOddGpt2,    Tiny::kLlama, Tiny::kOddLlama, Tiny::kBert,
    Tiny::kMixtral,        Tiny::kOddMixtral, Tiny::kQwen3, Tiny::kGptNeox,  Tiny::kGemma2,
    Tiny::kEncoderDecoder, Tiny::kT5,         Tiny::kLinear};
inline constexpr Tiny kTransformers[] = {Tiny::kGpt2,    Tiny::kLlama,          Tiny::kBert,
                                         Tiny::kMixtral, Tiny::kQwen3,          Tiny::kGptNeox,
                                         Tiny::kGemma2,  Tiny::kEncoderDecoder, Tiny::kT5};
inline constexpr DType kComputeTypes[] = {DType::kF32, DType::kBF16, DType::kF16};

inline bool has_source(Tiny tiny) { return tiny == Tiny::kEncoderDecoder || tiny == Tiny::kT5; }
inline bool has_experts(Tiny tiny) { return tiny == Tiny::kMixtral || tiny == Tiny::kOddMixtral; }

inline std::string name(Tiny tiny) {
  switch (tiny) {
    case Tiny::kGpt2:
      return "gpt2";
    case Tiny::kOddGpt2:
      return "odd-gpt2";
    case Tiny::kOddLlama:
      return "odd-llama";
    case Tiny::kLlama:
      return "llama";
    case Tiny::kBert:
      return "bert";
    case Tiny::kMixtral:
      return "mixtral";
    case Tiny::kOddMixtral:
      return "odd-mixtral";
    case Tiny::kQwen3:
      return "qwen3";
    case Tiny::kGptNeox:
      return "gpt-neox";
    case Tiny::kGemma2:
      return "gemma2";
    case Tiny::kEncoderDecoder:
      return "encoder-decoder";
    case Tiny::kT5:
      return "t5";
    case Tiny::kLinear:
      return "linear";
  }
  return "?";
}

inline constexpr std::int64_t kVocabulary = 37;
inline constexpr std::int64_t kFeatures = 3;

inline plan::ModelShape tiny_shape(plan::Family family, std::int64_t vocabulary = kVocabulary) {
  plan::ModelShape shape = plan::usual_shape(family);
  shape.name = "tiny";
  shape.vocabulary = vocabulary;
  shape.positions = 11;
  shape.hidden = 24;
  shape.layers = 2;
  shape.heads = 3;
  shape.kv_heads = shape.parts().gated ? 1 : 3;
  shape.feed_forward = shape.parts().gated ? 40 : 96;
  if (family == plan::Family::kMixtral) {
    shape.experts = 3;
    shape.feed_forward = 20;
  }
  if (family == plan::Family::kGemma2) {
    shape.window = 4;
    shape.query_pre_attn_scalar = 5;
  }
  if (shape.parts().encoder_decoder) {
    shape.decoder_layers = 2;
    shape.kv_heads = 3;
    shape.head_size = 10;
    shape.head = plan::Head::kTied;
    shape.relative_buckets = 8;
    shape.relative_distance = 5;
  }
  return trainable(shape);
}

// Caps among the scores and logits of tiny models.
inline void cap_softly(ModelOptions& options) {
  options.attention_softcap = 1.5;
  options.logit_softcap = 6;
}

inline plan::ModelShape odd_shape(plan::Family family, std::int64_t vocabulary = kVocabulary) {
  plan::ModelShape shape = tiny_shape(family, vocabulary);
  const bool gpt2 = family == plan::Family::kGpt2;
  shape.biases = family == plan::Family::kLlama;
  shape.head = gpt2 ? plan::Head::kOwn : plan::Head::kTied;
  shape.kv_heads = gpt2 ? 1 : 3;
  shape.feed_forward = gpt2 ? 31 : 17;
  if (!gpt2) shape.head_size = family == plan::Family::kLlama ? 10 : 6;
  if (family == plan::Family::kMixtral) {
    shape.experts = shape.experts_per_token = 3;
    shape.feed_forward = 3;
  }
  return shape;
}

inline Model make_tiny(Tiny tiny, double dropout = 0, std::int64_t vocabulary = kVocabulary,
                       double router_loss = 0.05) {
  ModelOptions options = {
      .dropout = dropout,
      .epsilon = std::nullopt,
      .theta = 10000,
      .scaling = {.factor = 2, .original_positions = 30},  // between a pair's turns
      .router_loss = router_loss};
  switch (tiny) {
    case Tiny::kGpt2:
      return make_model(tiny_shape(plan::Family::kGpt2, vocabulary), options);
    case Tiny::kOddGpt2:
      return make_model(odd_shape(plan::Family::kGpt2, vocabulary), options);
    case Tiny::kOddLlama:
      return make_model(odd_shape(plan::Family::kLlama, vocabulary), options);
    case Tiny::kLlama:
      return make_model(tiny_shape(plan::Family::kLlama, vocabulary), options);
    case Tiny::kMixtral:
      return make_model(tiny_shape(plan::Family::kMixtral, vocabulary), options);
    case Tiny::kOddMixtral:
      return make_model(odd_shape(plan::Family::kMixtral, vocabulary), options);
    case Tiny::kQwen3: {
      plan::ModelShape shape = tiny_shape(plan::Family::kQwen3, vocabulary);
      shape.window = 4;
      shape.unwindowed_layers = 1;
      return make_model(shape, options);
    }
    case Tiny::kGptNeox:
      return make_model(tiny_shape(plan::Family::kGptNeox, vocabulary), options);
    case Tiny::kGemma2:
      cap_softly(options);
      return make_model(tiny_shape(plan::Family::kGemma2, vocabulary), options);
    case Tiny::kBert:
      return make_model(tiny_shape(plan::Family::kBert, vocabulary), options);
    case Tiny::kEncoderDecoder:
      return make_encoder_decoder({.source_vocabulary = vocabulary,
                                   .target_vocabulary = vocabulary,
                                   .shared_vocabulary = true,
                                   .source_positions = 8,
                                   .target_positions = 11,
                                   .hidden = 24,
                                   .heads = 3,
                                   .feed_forward = 40,
                                   // ReLU bends the loss, which differences cannot follow.
                                   .activation = ops::Activation::kGeluTanh,
                                   .encoder_layers = 2,
                                   .decoder_layers = 2},
                                  options);
    case Tiny::kT5:
      return make_model(tiny_shape(plan::Family::kT5V11, vocabulary), options);
    case Tiny::kLinear:
      break;
  }
  return make_linear_model(kFeatures);
}

inline BatchShape tiny_batch_shape(Tiny tiny) {
  if (tiny == Tiny::kLinear) return {.batch = 5, .sequence = 1, .source_sequence = 0};
  return {.batch = 2, .sequence = 7, .source_sequence = has_source(tiny) ? 5 : 0};
}

// A batch that owns its tensors, of random tokens. Some targets are left out, and the end of the
// last sequence is padding where a model reads masks.
class TinyBatch {
 public:
  explicit TinyBatch(const BatchShape& shape, std::uint64_t seed = 1,
                     std::int64_t vocabulary = kVocabulary)
      : shape_(shape), vocabulary_(vocabulary) {
    const auto tokens = static_cast<std::size_t>(shape.tokens());
    const auto source_tokens = static_cast<std::size_t>(shape.source_tokens());
    for (std::size_t i = 0; i < tokens; ++i) {
      tokens_.push_back(token(seed, i));
      targets_.push_back(i % 5 == 3 ? ops::kNoTarget : token(seed + 1, i));
      types_.push_back(static_cast<std::int32_t>(random_word(seed + 2, 0, i) % 2));
      key_mask_.push_back(i + 2 >= tokens && tokens > 5 ? 0 : 1);
      outputs_.push_back(normal_at(seed + 3, 0, i));
    }
    for (std::size_t i = 0; i < source_tokens; ++i) {
      source_.push_back(token(seed + 4, i));
      source_mask_.push_back(i + 2 >= source_tokens ? 0 : 1);
    }
    for (std::size_t i = 0; i < tokens * kFeatures; ++i) {
      inputs_.push_back(normal_at(seed + 5, 0, i));
    }
  }

  Batch batch() {
    const Shape shape = {shape_.batch, shape_.sequence};
    Batch batch;
    batch.shape = shape_;
    batch.tokens = tensor_of(std::span(tokens_), shape);
    batch.targets = tensor_of(std::span(targets_), shape);
    batch.types = tensor_of(std::span(types_), shape);
    batch.key_mask = tensor_of(std::span(key_mask_), shape);
    batch.inputs = tensor_of(std::span(inputs_), {shape_.tokens(), kFeatures});
    batch.outputs = tensor_of(std::span(outputs_), {shape_.tokens(), 1});
    if (shape_.source_sequence == 0) return batch;
    const Shape source = {shape_.batch, shape_.source_sequence};
    batch.source = tensor_of(std::span(source_), source);
    batch.source_mask = tensor_of(std::span(source_mask_), source);
    return batch;
  }

 private:
  std::int32_t token(std::uint64_t seed, std::size_t position) const {
    return static_cast<std::int32_t>(random_word(seed, 0, position) %
                                     static_cast<std::uint64_t>(vocabulary_));
  }

  BatchShape shape_;
  std::int64_t vocabulary_;
  std::vector<std::int32_t> tokens_, targets_, types_, source_;
  std::vector<std::uint8_t> key_mask_, source_mask_;
  std::vector<float> inputs_, outputs_;
};

inline Setup tiny_setup(Tiny tiny, DType dtype = DType::kF32,
                        Recompute recompute = Recompute::kNone) {
  return {.shape = tiny_batch_shape(tiny),
          .dtype = dtype,
          .gradient = DType::kF32,
          .recompute = recompute};
}

inline Replica make_replica(Model model, const Setup& setup, Ops& ops,
                            OptimizerState optimizer = OptimizerState::kMoments) {
  MemoryPlan plan = plan_memory(model, setup, ops, optimizer);
  return {std::move(model), std::move(plan), ops};
}

// Moves every parameter away from its beginning, so that no gradient is zero by symmetry.
inline void shake(Replica& replica, float stddev) {
  const States& states = replica.states();
  for (const FlatParameter& parameter : replica.flat().all()) {
    const Tensor view = FlatParameters::view(states.master, parameter);
    std::uint64_t position = parameter.offset;
    for (float& value : view.as<float>()) value += stddev * normal_at(99, 0, position++);
  }
  if (states.master.data() == states.parameters.data()) return;
  replica.ops().run(ops::Cast{.from = states.master, .to = states.parameters});
}

// Bytes, to compare bit for bit.
inline std::vector<std::byte> bytes_of(const Tensor& tensor) {
  return {tensor.data(), tensor.data() + tensor.bytes()};
}

struct Outcome {
  std::vector<std::byte> losses;
  std::vector<std::byte> gradients;
  double loss = 0;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// One forward and backward from given beginnings.
inline Outcome outcome_of(Replica& replica, const Batch& batch,
                          const MicroBatch& micro_batch = {}) {
  replica.initialise(7);
  shake(replica, 0.1f);
  const Tensor losses = replica.forward_backward(batch, micro_batch);
  replica.ops().synchronize();
  return {bytes_of(losses), bytes_of(replica.states().gradients), sum_of(losses)};
}

// Every implementation of operations that there is, by name.
inline const std::vector<std::string>& all_ops() {
  static const std::vector<std::string> kAll = {"reference", "cpu"};
  return kAll;
}
inline std::unique_ptr<Ops> make_ops(const std::string& name) {
  return name == "cpu" ? make_cpu_ops(2) : make_reference_ops();
}

}  // namespace lockstep::nn
