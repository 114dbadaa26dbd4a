// Makes models from their sizes.
//
// A model of a plan::ModelShape has exactly plan::count_parameters() parameters. Its blocks are
// "embedding" (and "embedding.norm" in BERT), "layer.0" ... and "head"; in T5 those of
// nn/models/t5.h.
#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/nn/model.h"
#include "lockstep/nn/parts/long_rope.h"
#include "lockstep/plan/model_shape.h"

namespace lockstep::nn {

// Larger sizes are probably typing errors: these limits are ten times the deepest and a thousand
// times the largest models ever trained. Below them, memory can be planned without overflow.
inline constexpr std::int64_t kMostLayers = 10'000;
inline constexpr std::uint64_t kMostParameters = std::uint64_t{1} << 50;

// The coefficient of the loss that balances experts, as transformers has it.
inline constexpr double kUsualRouterLoss = 0.001;

struct ModelOptions {
  double dropout = 0;                              // of embeddings, attention and residual branches
  std::optional<float> epsilon;                    // of norms; else usual_epsilon()
  float theta = 10000;                             // of rotary positions
  ops::RotaryScaling scaling = {};                 // the same
  std::optional<LongRope> long_rope = {};          // the same, besides
  std::optional<double> rotary_share = {};         // of a head that turns; else the family's
  std::optional<ops::Activation> activation = {};  // of two matrices; else usual_activation()
  std::optional<bool> parallel_residual = {};      // else the family's
  std::optional<double> attention_softcap = {};    // else the family's; 0: none
  std::optional<double> logit_softcap = {};        // the same
  TensorGroup tensor = {};                // whose ranks divide the model (nn/tensor_shard.h)
  ExpertGroup experts = {};               // whose ranks divide the experts (nn/expert_group.h)
  double router_loss = kUsualRouterLoss;  // of mixtral (nn/parts/expert_counts.h); 0: none
};

// 1e-6 in llama, qwen3, gemma2 and both of t5, 1e-12 in bert, else 1e-5.
float usual_epsilon(plan::Family family);
// GELU: in gpt2 by tanh, else by erf; in t5 ReLU.
ops::Activation usual_activation(plan::Family family);
// How many elements of a head turn with its position: an even number. Throws
// Error(kInvalidArgument) where there would be none.
std::int64_t rotary_width(const plan::ModelShape& shape, const ModelOptions& options);

// Throws Error(kInvalidArgument) as plan::check() does, and for more layers or parameters than
// that.
void check_size(const plan::ModelShape& shape);

// Throws Error(kInvalidArgument) where the ranks of a tensor group cannot divide a model with these
// sizes evenly by heads, or have no token, with the numbers of ranks that can.
void check_tensor_group(std::int64_t heads, std::int64_t kv_heads, std::int64_t feed_forward,
                        std::int64_t vocabulary, int ranks);

// Throws Error(kInvalidArgument) where the ranks of an expert group cannot divide the experts of a
// model, with the numbers of ranks that can.
void check_expert_group(const plan::ModelShape& shape, int ranks);

// With an expert group every layer is two blocks: "layer.0" and "layer.0.mlp".
//
// Throws what check_size() throws, and Error(kUnsupported) for a head that the family cannot be
// trained with (a pooler makes no losses; see trainable()).
Model make_model(const plan::ModelShape& shape, const ModelOptions& options = {});

// The shape with a head that can be trained: published BERT ends in a pooler and is trained with
// the masked-language head.
plan::ModelShape trainable(plan::ModelShape shape);

// A transformer with encoder and decoder, for translation. Layers are pre-norm with a norm after
// the last of either half, positions learned; otherwise as in "Attention is all you need" (2017).
// Blocks: "source", "encoder.0" ..., "target", "decoder.0" ..., "head".
struct EncoderDecoderShape {
  std::int64_t source_vocabulary = 0;
  std::int64_t target_vocabulary = 0;
  bool shared_vocabulary = false;  // one table for both, and for the logits
  std::int64_t source_positions = 0;
  std::int64_t target_positions = 0;
  std::int64_t hidden = 512;
  std::int64_t heads = 8;
  std::int64_t feed_forward = 2048;
  ops::Activation activation = ops::Activation::kRelu;
  std::int64_t encoder_layers = 6;
  std::int64_t decoder_layers = 6;
};
Model make_encoder_decoder(const EncoderDecoderShape& shape, const ModelOptions& options = {});

// y = weight x + bias with the squared error as loss; one block, "linear". Weights begin at 0.
Model make_linear_model(std::int64_t features);

}  // namespace lockstep::nn
