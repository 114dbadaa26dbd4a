#include "lockstep/plan/model_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::plan {
namespace {

constexpr Count kGpt2Vocabulary = 50257;
constexpr Count kLlamaVocabulary = 32000;
constexpr Count kBertVocabulary = 30522;
constexpr Count kQwen3Vocabulary = 151936;
constexpr Count kPhi3Vocabulary = 32064;
constexpr Count kNeoxVocabulary = 50304;
constexpr Count kGemmaVocabulary = 256000;
constexpr Count kT5Vocabulary = 32128;
constexpr Count kTranslationVocabulary = 37000;  // of "Attention is all you need"
constexpr Count kTranslationPositions = 128;

ModelShape make(std::string name, Family family, Count layers, Count hidden, Count heads,
                Count positions) {
  ModelShape shape = usual_shape(family);
  shape.name = std::move(name);
  shape.positions = positions;
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_heads = heads;
  shape.feed_forward = usual_feed_forward(family, hidden);
  return shape;
}

std::vector<ModelShape> make_known_models() {
  std::vector<ModelShape> models = {
      make("gpt2-124m", Family::kGpt2, 12, 768, 12, 1024),
      make("gpt2-355m", Family::kGpt2, 24, 1024, 16, 1024),
      make("gpt2-774m", Family::kGpt2, 36, 1280, 20, 1024),
      make("gpt2-1558m", Family::kGpt2, 48, 1600, 25, 1024),
      make("gpt3-175b", Family::kGpt2, 96, 12288, 96, 2048),
      make("llama-7b", Family::kLlama, 32, 4096, 32, 2048),
      make("llama2-70b", Family::kLlama, 80, 8192, 64, 4096),
      make("llama3-8b", Family::kLlama, 32, 4096, 32, 8192),
      make("mistral-7b", Family::kLlama, 32, 4096, 32, 32768),
      make("qwen2-0.5b", Family::kLlama, 24, 896, 14, 32768),
      make("qwen2-7b", Family::kLlama, 28, 3584, 28, 32768),
      make("qwen3-0.6b", Family::kQwen3, 28, 1024, 16, 40960),
      make("qwen3-8b", Family::kQwen3, 36, 4096, 32, 40960),
      make("phi3-3.8b", Family::kPhi3, 32, 3072, 32, 4096),
      make("pythia-160m", Family::kGptNeox, 12, 768, 12, 2048),
      make("pythia-1.4b", Family::kGptNeox, 24, 2048, 16, 2048),
      make("gemma2-2b", Family::kGemma2, 26, 2304, 8, 8192),
      make("gemma2-9b", Family::kGemma2, 42, 3584, 16, 8192),
      make("gemma2-27b", Family::kGemma2, 46, 4608, 32, 8192),
      make("mixtral-8x7b", Family::kMixtral, 32, 4096, 32, 32768),
      make("t5-small", Family::kT5, 6, 512, 8, 512),
      make("t5-base", Family::kT5, 12, 768, 12, 512),
      make("t5-large", Family::kT5, 24, 1024, 16, 512),
      make("flan-t5-small", Family::kT5V11, 8, 512, 6, 512),
      make("flan-t5-base", Family::kT5V11, 12, 768, 12, 512),
      make("flan-t5-large", Family::kT5V11, 24, 1024, 16, 512),
      make("flan-t5-xl", Family::kT5V11, 24, 2048, 32, 512),
      make("bert-base", Family::kBert, 12, 768, 12, 512),
      make("bert-large", Family::kBert, 24, 1024, 16, 512),
  };
  for (ModelShape& model : models) {
    if (model.name == "llama2-70b") {
      model.kv_heads = 8;
      model.feed_forward = 28672;
    }
    if (model.name == "mixtral-8x7b" || model.name == "mistral-7b" || model.name == "llama3-8b") {
      model.kv_heads = 8;
      model.feed_forward = 14336;
    }
    if (model.name == "llama3-8b") model.vocabulary = 128256;
    if (model.name == "qwen2-0.5b") {
      model.kv_heads = 2;
      model.feed_forward = 4864;
      model.vocabulary = 151936;
      model.head = Head::kTied;
    }
    if (model.name == "qwen2-7b") {
      model.kv_heads = 4;
      model.feed_forward = 18944;
      model.vocabulary = 152064;
    }
    model.qkv_biases = model.name.starts_with("qwen2");
    if (model.family == Family::kQwen3) {
      model.kv_heads = 8;
      model.head_size = 128;
    }
    if (model.name == "qwen3-0.6b") {
      model.feed_forward = 3072;
      model.head = Head::kTied;
    }
    if (model.name == "qwen3-8b") model.feed_forward = 12288;
    if (model.family == Family::kGemma2) {
      model.kv_heads = model.heads / 2;
      model.head_size = 256;
      model.window = 4096;
    }
    if (model.name == "gemma2-27b") {
      model.head_size = 128;
      model.feed_forward = 36864;
      model.query_pre_attn_scalar = 144;
    }
    if (model.name == "phi3-3.8b") {
      model.feed_forward = 8192;
      model.window = 2047;
    }
    if (model.parts().encoder_decoder) {
      model.head_size = 64;
      model.decoder_layers = model.layers;
    }
    if (model.name == "flan-t5-small") model.feed_forward = 1024;
    if (model.name == "flan-t5-xl") model.feed_forward = 5120;
  }
  return models;
}

[[noreturn]] void fail_unknown(std::string_view what, std::string_view text,
                               std::span<const std::string_view> known) {
  const std::string_view near = nearest(text, known);
  fail(ErrorCode::kInvalidArgument, "unknown {} '{}'{}; expected one of {}", what, text,
       near.empty() ? "" : fmt::format(" (did you mean {}?)", near), fmt::join(known, ", "));
}

template <class Named>
Named from_name(std::string_view what, std::string_view text, std::span<const Named> all) {
  std::vector<std::string_view> names;
  for (const Named one : all) {
    if (name(one) == text) return one;
    names.push_back(name(one));
  }
  fail_unknown(what, text, names);
}

void check_experts(const ModelShape& shape) {
  if (!shape.parts().experts) {
    if (!shape.has_experts() && shape.experts_per_token == 0) return;
    fail(ErrorCode::kInvalidArgument,
         "models of family {} have no experts, but the model has {}; take the family {}",
         name(shape.family), shape.experts, families_with(&FamilyParts::experts));
  }
  if (shape.experts_per_token < 1 || shape.experts_per_token > shape.experts) {
    fail(ErrorCode::kInvalidArgument,
         "a token goes to {} of {} experts; take from 1 to as many as there are",
         shape.experts_per_token, shape.experts);
  }
  constexpr Count kMostExperts = 4096;
  if (shape.experts > kMostExperts) {
    fail(ErrorCode::kInvalidArgument,
         "a layer of {} experts is too wide: at most {} are supported; check the number",
         shape.experts, kMostExperts);
  }
  if (shape.biases) {
    fail(ErrorCode::kInvalidArgument, "models of family {} have no biases; leave them out",
         name(shape.family));
  }
}

void check_heads(const ModelShape& shape) {
  if (shape.head_size > 0 && !shape.parts().head_sizes) {
    fail(ErrorCode::kInvalidArgument,
         "models of family {} have heads of hidden size / heads; a head size of their own is for "
         "the families {}",
         name(shape.family), families_with(&FamilyParts::head_sizes));
  }
  if (shape.head_size == 0 && shape.hidden % shape.heads != 0) {
    fail(ErrorCode::kInvalidArgument,
         "a hidden size of {} cannot be split into {} heads of equal width; choose a number of "
         "heads that divides it",
         shape.hidden, shape.heads);
  }
  if (shape.parts().rotary && shape.head_width() % 2 != 0) {
    fail(ErrorCode::kInvalidArgument,
         "a hidden size of {} in {} heads makes heads of width {}, but rotary positions need heads "
         "of even width; choose sizes with an even head width",
         shape.hidden, shape.heads, shape.head_width());
  }
  if (shape.qkv_biases && shape.family != Family::kLlama) {
    fail(ErrorCode::kInvalidArgument,
         "biases of queries, keys and values alone are for the family llama, but the model is of "
         "family {}; leave them out",
         name(shape.family));
  }
  if (shape.window > 0 && !shape.parts().windows) {
    fail(ErrorCode::kInvalidArgument,
         "a window of attention is for the families {}, but the model is of family {}; leave it "
         "out",
         families_with(&FamilyParts::windows), name(shape.family));
  }
  if (shape.unwindowed_layers > 0 && shape.parts().alternating) {
    fail(ErrorCode::kInvalidArgument,
         "models of family {} have a window in every second layer, from the first on, but the "
         "first {} layers shall have none; leave that out",
         name(shape.family), shape.unwindowed_layers);
  }
  if (shape.query_pre_attn_scalar > 0 && !shape.parts().soft_caps) {
    fail(ErrorCode::kInvalidArgument,
         "models of family {} divide scores by the root of a head's width; a query_pre_attn_scalar "
         "of their own is for the families {}",
         name(shape.family), families_with(&FamilyParts::soft_caps));
  }
}

// Stacks, and biases by distance.
void check_stacks(const ModelShape& shape) {
  const FamilyParts& parts = shape.parts();
  if (parts.encoder_decoder && shape.decoder_layers == 0) {
    fail(ErrorCode::kInvalidArgument,
         "models of family {} have a decoder, but the number of its layers is 0; it must be 1 or "
         "more",
         name(shape.family));
  }
  if (parts.encoder_decoder && shape.kv_heads != shape.heads) {
    fail(ErrorCode::kInvalidArgument,
         "models of family {} have as many key/value heads as heads, but this one has {} and {}; "
         "leave the former out",
         name(shape.family), shape.kv_heads, shape.heads);
  }
  if (!parts.relative_bias) return;
  if (shape.biases) {
    fail(ErrorCode::kInvalidArgument, "models of family {} have no biases; leave them out",
         name(shape.family));
  }
  const bool counted = shape.relative_buckets >= 4 && shape.relative_buckets % 2 == 0;
  if (counted && shape.relative_distance > shape.relative_buckets / 2) return;
  fail(ErrorCode::kInvalidArgument,
       "{} buckets for distances of up to {} cannot be; take an even number of buckets from 4 up, "
       "and a distance of more than half of it",
       shape.relative_buckets, shape.relative_distance);
}

}  // namespace

Count ModelShape::windowed_layers() const {
  if (window == 0) return 0;
  if (parts().alternating) return divide_up(layers, 2);
  return layers - std::min(layers, unwindowed_layers);
}

std::string_view name(Family family) {
  switch (family) {
    case Family::kGpt2:
      return "gpt2";
    case Family::kLlama:
      return "llama";
    case Family::kBert:
      return "bert";
    case Family::kMixtral:
      return "mixtral";
    case Family::kQwen3:
      return "qwen3";
    case Family::kPhi3:
      return "phi3";
    case Family::kGptNeox:
      return "gpt-neox";
    case Family::kGemma2:
      return "gemma2";
    case Family::kT5:
      return "t5";
    case Family::kT5V11:
      return "t5-v1.1";
  }
  return "?";
}

const FamilyParts& parts_of(Family family) {
  static constexpr FamilyParts kGpt2{.biases = true};
  static constexpr FamilyParts kBert{.causal = false, .biases = true};
  static constexpr FamilyParts kLlama{
      .rms_norm = true, .rotary = true, .gated = true, .head_sizes = true, .windows = true};
  static constexpr FamilyParts kMixtral{.rms_norm = true,
                                        .rotary = true,
                                        .gated = true,
                                        .experts = true,
                                        .head_sizes = true,
                                        .windows = true};
  static constexpr FamilyParts kQwen3{.rms_norm = true,
                                      .rotary = true,
                                      .gated = true,
                                      .qk_norm = true,
                                      .head_sizes = true,
                                      .windows = true};
  static constexpr FamilyParts kGptNeox{.rotary = true,
                                        .partly_rotary = true,
                                        .rotary_share = 0.25,
                                        .parallel = true,
                                        .biases = true};
  static constexpr FamilyParts kPhi3{.rms_norm = true,
                                     .rotary = true,
                                     .partly_rotary = true,
                                     .gated = true,
                                     .head_sizes = true,
                                     .windows = true};
  static constexpr FamilyParts kGemma2{.rms_norm = true,
                                       .rotary = true,
                                       .gated = true,
                                       .gelu_gates = true,
                                       .sandwich = true,
                                       .gains_above_one = true,
                                       .scaled_embedding = true,
                                       .alternating = true,
                                       .soft_caps = true,
                                       .attention_softcap = 50,
                                       .logit_softcap = 30,
                                       .head_sizes = true,
                                       .windows = true};
  static constexpr FamilyParts kT5{.causal = false,
                                   .rms_norm = true,
                                   .relative_bias = true,
                                   .encoder_decoder = true,
                                   .head_sizes = true};
  static constexpr FamilyParts kT5V11{.causal = false,
                                      .rms_norm = true,
                                      .gated = true,
                                      .gelu_gates = true,
                                      .relative_bias = true,
                                      .encoder_decoder = true,
                                      .head_sizes = true};
  switch (family) {
    case Family::kGpt2:
      break;
    case Family::kGemma2:
      return kGemma2;
    case Family::kT5:
      return kT5;
    case Family::kT5V11:
      return kT5V11;
    case Family::kLlama:
      return kLlama;
    case Family::kPhi3:
      return kPhi3;
    case Family::kBert:
      return kBert;
    case Family::kMixtral:
      return kMixtral;
    case Family::kQwen3:
      return kQwen3;
    case Family::kGptNeox:
      return kGptNeox;
  }
  return kGpt2;
}

std::string families_with(bool FamilyParts::*part) {
  std::vector<std::string_view> names;
  for (const Family family : kAllFamilies) {
    if (parts_of(family).*part) names.push_back(name(family));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string_view family_name(const ModelShape& shape) {
  const bool is_plain = shape.is_encoder_decoder() && !shape.parts().encoder_decoder;
  return is_plain ? kEncoderDecoderName : name(shape.family);
}

std::string_view name(Head head) {
  switch (head) {
    case Head::kTied:
      return "tied";
    case Head::kOwn:
      return "own";
    case Head::kMaskedLanguage:
      return "mlm";
    case Head::kPooler:
      return "pooler";
  }
  return "?";
}

Family family_from_name(std::string_view text) {
  return from_name<Family>("family", text, kAllFamilies);
}

Head head_from_name(std::string_view text) { return from_name<Head>("head", text, kAllHeads); }

std::span<const ModelShape> known_models() {
  static const std::vector<ModelShape> kModels = make_known_models();
  return kModels;
}

const ModelShape& find_model(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModelShape& model : known_models()) {
    if (model.name == name) return model;
    names.push_back(model.name);
  }
  fail_unknown("model", name, names);
}

ModelShape usual_shape(Family family) {
  ModelShape shape;
  shape.family = family;
  shape.vocabulary = kLlamaVocabulary;
  shape.positions = 2048;
  shape.head = Head::kOwn;
  shape.biases = shape.parts().biases;
  switch (family) {
    case Family::kLlama:
      break;
    case Family::kGpt2:
      shape.vocabulary = kGpt2Vocabulary;
      shape.positions = 1024;
      shape.head = Head::kTied;
      break;
    case Family::kMixtral:
      shape.experts = 8;
      shape.experts_per_token = 2;
      break;
    case Family::kBert:
      shape.vocabulary = kBertVocabulary;
      shape.positions = 512;
      shape.head = Head::kPooler;
      break;
    case Family::kQwen3:
      shape.vocabulary = kQwen3Vocabulary;
      break;
    case Family::kPhi3:
      shape.vocabulary = kPhi3Vocabulary;
      break;
    case Family::kGptNeox:
      shape.vocabulary = kNeoxVocabulary;
      break;
    case Family::kGemma2:
      shape.vocabulary = kGemmaVocabulary;
      shape.positions = 8192;
      shape.head = Head::kTied;
      break;
    case Family::kT5:
    case Family::kT5V11:
      shape.vocabulary = kT5Vocabulary;
      shape.positions = 512;
      shape.relative_buckets = 32;
      shape.relative_distance = 128;
      if (family == Family::kT5) shape.head = Head::kTied;
      break;
  }
  return shape;
}

ModelShape usual_encoder_decoder() {
  ModelShape shape;
  shape.vocabulary = kTranslationVocabulary;
  shape.positions = kTranslationPositions;
  return shape;
}

Count usual_feed_forward(Family family, Count hidden) {
  constexpr Count kMultiple = 256;
  const Count wide = product({4, hidden});
  if (!parts_of(family).gated || family == Family::kGemma2) return wide;
  return product({divide_up(product({2, wide}), 3 * kMultiple), kMultiple});
}

void check(const ModelShape& shape) {
  const struct {
    std::string_view what;
    Count value;
  } sizes[] = {{"vocabulary", shape.vocabulary},
               {"number of positions", shape.positions},
               {"hidden size", shape.hidden},
               {"number of layers", shape.layers},
               {"number of heads", shape.heads},
               {"number of key/value heads", shape.kv_heads},
               {"feed-forward width", shape.feed_forward}};
  for (const auto& size : sizes) {
    if (size.value == 0) {
      fail(ErrorCode::kInvalidArgument, "the {} of the model is 0; it must be 1 or more",
           size.what);
    }
  }
  check_heads(shape);
  check_stacks(shape);
  if (shape.heads % shape.kv_heads != 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} heads cannot share {} key/value heads evenly; take a number that divides {}",
         shape.heads, shape.kv_heads, shape.heads);
  }
  check_experts(shape);
}

}  // namespace lockstep::plan
