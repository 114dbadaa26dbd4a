// The shape of a transformer: the sizes that determine its parameters, FLOPs and bytes.
//
// All families are a token embedding, `layers` times attention and feed-forward with residuals, and
// a head; they differ in the parts around that (FamilyParts):
//
//             positions    norms        feed-forward            norm after the last layer
//   gpt2      learned      layer norm   GELU, two matrices      yes
//   llama     rotary       RMS norm     SwiGLU, three matrices  yes
//   bert      learned      layer norm   GELU, two matrices      no; one after the embedding
//   mixtral   rotary       RMS norm     experts of SwiGLU       yes
//   qwen3     rotary       RMS norm     SwiGLU, three matrices  yes; others of queries and keys
//   phi3      rotary       RMS norm     SwiGLU, three matrices  yes
//   gpt-neox  rotary, of   layer norm   GELU, two matrices,     yes
//             a quarter                 beside the attention
//   gemma2    rotary       RMS norm,    GELU, three matrices    yes
//                          four a layer
//   t5        biases of    RMS norm     ReLU, two matrices      yes, in both stacks
//             attention
//   t5-v1.1   as t5        RMS norm     GELU, three matrices    yes, in both stacks
//
// phi3 is llama with other names in files (nn/hugging_face/names.h).
//
// Mixtral's feed-forward is a mixture: a router sends every token to some of the experts, and each
// expert is a SwiGLU network of the feed-forward width.
//
// Gemma 2 has norms before and behind each branch, every second layer a window of attention, soft
// caps of attention's scores and of the logits, and embeddings that are scaled.
//
// BERT also embeds which of two sentences a token is in (token types).
//
// An encoder-decoder is two such stacks of the gpt2 kind, of which the second has an attention to
// the first in every layer, learned positions each, a norm after each, and one table for all tokens
// and for the logits. Here it is a shape with decoder_layers.
//
// T5 is an encoder-decoder of its own parts. Instead of positions every stack has a table that
// attention reads its biases from, by the distance of key and query (relative_buckets). Scores are
// not divided by the root of a head's width. A tied head divides by that of the hidden size.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "lockstep/plan/count.h"

namespace lockstep::plan {

enum class Family { kGpt2, kLlama, kBert, kMixtral, kQwen3, kPhi3, kGptNeox, kGemma2, kT5, kT5V11 };
inline constexpr Family kAllFamilies[] = {
    Family::kGpt2, Family::kLlama,   Family::kBert,   Family::kMixtral, Family::kQwen3,
    Family::kPhi3, Family::kGptNeox, Family::kGemma2, Family::kT5,      Family::kT5V11};

// What the models of a family are made of. A new family is a row of parts_of().
struct FamilyParts {
  bool causal = true;          // tokens see those before them; else all
  bool rms_norm = false;       // else layer norms
  bool rotary = false;         // else learned positions
  bool partly_rotary = false;  // of a share of every head, usually this one
  double rotary_share = 1;
  bool gated = false;             // SwiGLU, three matrices; else two with an activation between
  bool experts = false;           // of that feed-forward network
  bool qk_norm = false;           // queries and keys have an RMS norm of every head
  bool parallel = false;          // both branches of a layer read its input, usually
  bool biases = false;            // of linear layers, usually; of layer norms always
  bool gelu_gates = false;        // of `gated`, GELU by tanh; else SiLU
  bool sandwich = false;          // a norm behind each branch, too
  bool gains_above_one = false;   // parameters of norms are how far their gains are above 1
  bool scaled_embedding = false;  // by the root of the hidden size
  bool alternating = false;       // a window is that of every second layer, from the first on
  bool soft_caps = false;         // of attention's scores and of the logits, usually these
  double attention_softcap = 0;
  double logit_softcap = 0;
  bool relative_bias = false;    // attention has biases by distance; else positions
  bool encoder_decoder = false;  // two stacks, for translation
  bool head_sizes = false;       // heads may have another width than hidden size / heads
  bool windows = false;          // attention may be to the last tokens alone
};
const FamilyParts& parts_of(Family family);
// The names of those whose parts are so: "llama, qwen3".
std::string families_with(bool FamilyParts::*part);

// The head of a model.
enum class Head {
  kTied,            // logits by the token embedding's own matrix: no parameters
  kOwn,             // logits by a matrix of its own, vocabulary x hidden
  kMaskedLanguage,  // BERT's: dense, norm, logits by the token embedding plus a bias
  kPooler,          // BERT's as published: dense on the first token, no logits
};
inline constexpr Head kAllHeads[] = {Head::kTied, Head::kOwn, Head::kMaskedLanguage, Head::kPooler};

struct ModelShape {
  std::string name;
  Family family = Family::kGpt2;
  Count vocabulary = 0;
  Count positions = 0;  // the longest sequence; learned positions are parameters
  Count hidden = 0;
  Count layers = 0;          // of an encoder-decoder: of its encoder
  Count decoder_layers = 0;  // over 0: an encoder-decoder
  Count heads = 0;
  Count kv_heads = 0;   // fewer than heads: grouped-query attention
  Count head_size = 0;  // 0: hidden / heads
  Count feed_forward = 0;
  Count experts = 0;  // of a layer, in mixtral
  Count experts_per_token = 0;
  Head head = Head::kTied;
  bool biases = true;           // of linear layers, and of layer norms
  bool qkv_biases = false;      // of queries, keys and values where no other layer has any (Qwen2)
  Count window = 0;             // tokens that attention sees, its own and those before; 0: all
  Count unwindowed_layers = 0;  // the first ones, whose attention sees all nevertheless (Qwen2)
  Count query_pre_attn_scalar = 0;  // scores are divided by its root (Gemma); 0: a head's width
  // Of biases by distance (ops/relative_bias.h).
  Count relative_buckets = 0;
  Count relative_distance = 0;

  Count head_width() const { return head_size > 0 ? head_size : hidden / heads; }
  // Widths of all query heads together, and of all key heads, or all value heads.
  Count query_width() const { return head_width() * heads; }
  Count kv_width() const { return head_width() * kv_heads; }
  bool has_qkv_biases() const { return biases || qkv_biases; }
  const FamilyParts& parts() const { return parts_of(family); }
  bool learns_positions() const { return !parts().rotary && !parts().relative_bias; }
  // Of a layer by its number; 0: none.
  Count window_of(Count layer) const {
    const bool sees_all = layer < unwindowed_layers || (parts().alternating && layer % 2 == 1);
    return sees_all ? 0 : window;
  }
  // How many layers have one.
  Count windowed_layers() const;
  bool is_encoder_decoder() const { return decoder_layers > 0; }
  bool has_experts() const { return experts > 0; }
  Count all_layers() const { return layers + decoder_layers; }
};

inline constexpr std::string_view kEncoderDecoderName = "encoder-decoder";

std::string_view name(Family family);
std::string_view family_name(const ModelShape& shape);  // "gpt2", ..., "t5", "encoder-decoder"
std::string_view name(Head head);
// Throw Error(kInvalidArgument) with the valid names and the nearest.
Family family_from_name(std::string_view text);
Head head_from_name(std::string_view text);

// gpt2-124m and its like, by the sizes their authors published.
std::span<const ModelShape> known_models();
const ModelShape& find_model(std::string_view name);

// The defaults of a family; hidden, layers, heads and what depends on them are 0.
ModelShape usual_shape(Family family);
// An encoder-decoder for translation, likewise.
ModelShape usual_encoder_decoder();
// 4h, in gemma2 too; for the three matrices of SwiGLU and of t5-v1.1 two thirds of that, rounded up
// to a multiple of 256.
Count usual_feed_forward(Family family, Count hidden);

// Throws Error(kInvalidArgument) for a size of zero and for heads that do not divide.
void check(const ModelShape& shape);

}  // namespace lockstep::plan
