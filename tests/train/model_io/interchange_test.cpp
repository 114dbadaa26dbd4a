#include "lockstep/train/model_io/interchange.h"
#include "lockstep/base/file/scratch_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/io/sharded_safetensors.h"
#include "lockstep/nn/hugging_face/config.h"
#include "lockstep/train/model_io/stored_model.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/model_io/hugging_face_fixture.h"
#include "tests/train/model_io/hugging_face_folder.h"

namespace lockstep::train::interchange_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr const char* kTokenizer =
    R"({"model": {"type": "BPE"}, "added_tokens": [{"id": 96, "content": "<|endoftext|>"}]})";

// What a call throws; empty where it throws nothing.
template <class F>
std::string refusal(ErrorCode code, F&& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "";
}

void expect_same_tensors(const io::TensorSource& ours, const io::TensorSource& theirs) {
  EXPECT_EQ(ours.names().size(), theirs.names().size());
  for (const std::string_view name : theirs.names()) {
    ASSERT_NE(ours.find(name), nullptr) << name;
    const auto a = ours.load(name);
    const auto b = theirs.load(name);
    EXPECT_EQ(a.tensor.shape(), b.tensor.shape()) << name;
    ASSERT_EQ(a.tensor.bytes(), b.tensor.bytes()) << name;
    EXPECT_EQ(std::memcmp(a.tensor.data(), b.tensor.data(), a.tensor.bytes()), 0) << name;
  }
}

class Interchange : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { lockstep::fixtures::write_model_folder(theirs_, GetParam()); }
  std::string import_refusal(ErrorCode code) const {
    return refusal(code, [&] { import_hugging_face(theirs_, run_); });
  }

  ScratchFolder folder_;
  fs::path theirs_ = folder_.path() / "theirs";
  fs::path run_ = folder_.path() / "run";
  fs::path ours_ = folder_.path() / "ours";
};

TEST_P(Interchange, AnImportedModelComputesWhatTransformersDoes) {
  const Interchanged done = import_hugging_face(theirs_, run_);
  const Fixture fixture(GetParam());
  const Checkpoint checkpoint = open_checkpoint(run_, {});
  TrainOptions options = stored_options(checkpoint);
  options.batch = fixture.options.batch;
  options.precision = plan::Precision::kF32;
  const auto ops = make_reference_ops();
  Trainer trainer(options, *ops);
  ASSERT_TRUE(CheckpointFolder(run_).restore(trainer.replica(), {}));
  EXPECT_EQ(done.parameters, trainer.replica().flat().count());
  const std::vector<float> expected = fixture.floats("logits");
  std::vector<float> logits(expected.size());
  const std::int64_t tokens = fixture.batch.shape.tokens();
  trainer.replica().evaluate(
      fixture.batch,
      tensor_of(std::span(logits), {tokens, static_cast<std::int64_t>(logits.size()) / tokens}));
  ops->synchronize();
  EXPECT_LT(largest_difference(logits, expected), 1e-5);
}

TEST_P(Interchange, AnExportHasEveryTensorBitForBitInOneFileOrMany) {
  import_hugging_face(theirs_, run_);
  for (const std::size_t bytes : {std::size_t{1} << 30, std::size_t{8192}}) {
    const Interchanged done = export_hugging_face(run_, ours_, {.shard_bytes = bytes}, {});
    EXPECT_EQ(fs::exists(ours_ / "model.safetensors"), bytes > 8192);
    EXPECT_EQ(fs::exists(ours_ / "model.safetensors.index.json"), bytes == 8192);
    expect_same_tensors(io::ShardedSafetensors(ours_), io::ShardedSafetensors(theirs_));
    // And its configuration is that of the same model.
    const auto parsed =
        nn::parse_hugging_face_config(read_file(ours_ / "config.json"), "the export's");
    const auto original =
        nn::parse_hugging_face_config(read_file(theirs_ / "config.json"), "the original");
    EXPECT_EQ(plan::name(parsed.shape.head), plan::name(original.shape.head));
    EXPECT_EQ(parsed.shape.feed_forward, original.shape.feed_forward);
    EXPECT_EQ(parsed.shape.kv_heads, original.shape.kv_heads);
    EXPECT_EQ(parsed.shape.positions, original.shape.positions);
    EXPECT_EQ(parsed.shape.experts, original.shape.experts);
    EXPECT_EQ(parsed.shape.experts_per_token, original.shape.experts_per_token);
    EXPECT_EQ(parsed.options.router_loss, original.options.router_loss);
    EXPECT_EQ(parsed.options.epsilon, original.options.epsilon);
    EXPECT_EQ(parsed.options.theta, original.options.theta);
    EXPECT_EQ(parsed.options.dropout, original.options.dropout);
    EXPECT_EQ(plan::name(parsed.shape.family), plan::name(original.shape.family));
    EXPECT_EQ(parsed.shape.qkv_biases, original.shape.qkv_biases);
    EXPECT_EQ(parsed.shape.head_width(), original.shape.head_width());
    EXPECT_EQ(parsed.shape.window, original.shape.window);
    EXPECT_EQ(parsed.shape.decoder_layers, original.shape.decoder_layers);
    EXPECT_EQ(parsed.shape.relative_buckets, original.shape.relative_buckets);
    EXPECT_EQ(parsed.shape.relative_distance, original.shape.relative_distance);
    EXPECT_EQ(parsed.shape.unwindowed_layers, original.shape.unwindowed_layers);
    EXPECT_EQ(parsed.shape.query_pre_attn_scalar, original.shape.query_pre_attn_scalar);
    EXPECT_EQ(parsed.options.attention_softcap, original.options.attention_softcap);
    EXPECT_EQ(parsed.options.logit_softcap, original.options.logit_softcap);
    EXPECT_EQ(parsed.options.activation, original.options.activation);
    EXPECT_EQ(parsed.options.rotary_share, original.options.rotary_share);
    EXPECT_EQ(parsed.options.parallel_residual, original.options.parallel_residual);
    EXPECT_EQ(done.shape.layers, original.shape.layers);
  }
}

TEST_P(Interchange, SixteenBitsAreRounded) {
  import_hugging_face(theirs_, run_);
  export_hugging_face(run_, ours_, {.dtype = DType::kBF16}, {});
  const io::ShardedSafetensors narrow(ours_);
  const io::ShardedSafetensors wide(theirs_);
  for (const std::string_view name : wide.names()) {
    const auto rounded = narrow.load(name);
    const auto exact = wide.load(name);
    const auto ours = rounded.tensor.as<BFloat16>();
    const auto theirs = exact.tensor.as<float>();
    ASSERT_EQ(ours.size(), theirs.size());
    for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_EQ(ours[i], to_bfloat16(theirs[i]));
  }
  // 16 bits read back and written again are the same.
  import_hugging_face(ours_, run_);
  export_hugging_face(run_, folder_.path() / "again", {.dtype = DType::kBF16}, {});
  expect_same_tensors(io::ShardedSafetensors(folder_.path() / "again"), narrow);
}

TEST_P(Interchange, WhatIsMissingOrOfAnotherShapeIsNamed) {
  const auto whole = lockstep::fixtures::tensors_of_fixture(GetParam());
  for (std::size_t i = 0; i < whole.tensors.size(); i += 5) {
    auto tensors = whole.tensors;
    const io::NamedTensor taken = tensors[i];
    tensors.erase(tensors.begin() + static_cast<std::ptrdiff_t>(i));
    io::write_safetensors(theirs_ / "model.safetensors", tensors);
    EXPECT_THAT(import_refusal(ErrorCode::kInvalidArgument), HasSubstr(taken.name));
    tensors.push_back(
        {taken.name, taken.tensor.reshaped(
                         {1, 1, taken.tensor.shape()[0],
                          taken.tensor.shape().dimensions() == 1 ? 1 : taken.tensor.shape()[1]})});
    io::write_safetensors(theirs_ / "model.safetensors", tensors);
    EXPECT_THAT(import_refusal(ErrorCode::kInvalidArgument), HasSubstr(taken.name));
  }
  EXPECT_FALSE(fs::exists(run_));
  auto more = whole.tensors;
  more.push_back({"model.layers.0.self_attn.o_proj.bias", whole.tensors.front().tensor});
  io::write_safetensors(theirs_ / "model.safetensors", more);
  EXPECT_THAT(import_refusal(ErrorCode::kUnsupported), HasSubstr("self_attn.o_proj.bias"));
}

INSTANTIATE_TEST_SUITE_P(Models, Interchange, ::testing::ValuesIn(kFixtureModels),
                         [](const auto& test) { return std::string(test.param); });

// What is the same in every family.
class InterchangeFolder : public ::testing::Test {
 protected:
  void SetUp() override { lockstep::fixtures::write_model_folder(theirs_, "gpt2"); }
  std::string import_refusal(ErrorCode code) const {
    return refusal(code, [&] { import_hugging_face(theirs_, run_); });
  }
  std::string export_refusal(ErrorCode code) const {
    return refusal(code, [&] { export_hugging_face(run_, ours_, {}, {}); });
  }

  ScratchFolder folder_;
  fs::path theirs_ = folder_.path() / "theirs";
  fs::path run_ = folder_.path() / "run";
  fs::path ours_ = folder_.path() / "ours";
};

TEST_F(InterchangeFolder, ATokenizerPassesThrough) {
  write_file(theirs_ / "tokenizer.json", kTokenizer);
  import_hugging_face(theirs_, run_);
  export_hugging_face(run_, ours_, {}, {});
  EXPECT_EQ(read_file(ours_ / "tokenizer.json"), kTokenizer);
  EXPECT_THAT(read_file(ours_ / "tokenizer_config.json"),
              HasSubstr("\"eos_token\": \"<|endoftext|>\""));
  EXPECT_THAT(read_file(ours_ / "config.json"), HasSubstr("\"eos_token_id\": 96"));
  // One of ours goes under a name that transformers does not read, and comes back; beside it is one
  // that transformers reads.
  fs::remove(theirs_ / "tokenizer.json");
  write_file(theirs_ / "lockstep_tokenizer.json", "{\"kind\": \"byte\"}");
  import_hugging_face(theirs_, run_);
  export_hugging_face(run_, ours_, {}, {});
  EXPECT_EQ(data::load_tokenizer(ours_ / "tokenizer.json")->vocabulary(), 256);
  EXPECT_THAT(read_file(ours_ / "tokenizer_config.json"), HasSubstr("PreTrainedTokenizerFast"));
  EXPECT_EQ(read_file(ours_ / "lockstep_tokenizer.json"), "{\"kind\": \"byte\"}");
  write_file(theirs_ / "lockstep_tokenizer.json", "{");
  EXPECT_THAT(import_refusal(ErrorCode::kProtocol), HasSubstr("not valid JSON"));
}

TEST_F(InterchangeFolder, OnlyWhatIsEmptyOrOursIsReplaced) {
  fs::create_directory(run_);
  import_hugging_face(theirs_, run_);
  import_hugging_face(theirs_, run_);
  fs::create_directory(ours_);
  export_hugging_face(run_, ours_, {}, {});
  export_hugging_face(run_, ours_, {.dtype = DType::kF16}, {});
  write_file(ours_ / "notes.txt", "mine");
  EXPECT_THAT(export_refusal(ErrorCode::kInvalidArgument), HasSubstr("holds 'notes.txt'"));
  // A model that was fetched has the same names, but is not ours.
  EXPECT_THAT(
      refusal(ErrorCode::kInvalidArgument, [&] { export_hugging_face(run_, theirs_, {}, {}); }),
      HasSubstr("did not write"));
  // A run that has learned something.
  fs::copy(run_ / "checkpoints" / "step-00000000", run_ / "checkpoints" / "step-00000007",
           fs::copy_options::recursive);
  EXPECT_THAT(import_refusal(ErrorCode::kInvalidArgument), HasSubstr("trained up to step 7"));
  write_file(folder_.path() / "file", "");
  EXPECT_THAT(refusal(ErrorCode::kInvalidArgument,
                      [&] { import_hugging_face(theirs_, folder_.path() / "file"); }),
              HasSubstr("is not a folder"));
}

TEST_F(InterchangeFolder, NamesThatFilesHaveHadAndTensorsThatNobodyNeedsAreKnown) {
  lockstep::fixtures::write_model_folder(theirs_, "bert");
  const auto whole = lockstep::fixtures::tensors_of_fixture("bert");
  std::vector<io::NamedTensor> old;
  for (io::NamedTensor tensor : whole.tensors) {
    const auto rename = [&](std::string_view now, std::string_view before) {
      if (!tensor.name.ends_with(now)) return;
      tensor.name = tensor.name.substr(0, tensor.name.size() - now.size()) + std::string(before);
    };
    rename("LayerNorm.weight", "LayerNorm.gamma");
    rename("LayerNorm.bias", "LayerNorm.beta");
    old.push_back(tensor);
  }
  old.push_back({"bert.pooler.dense.weight", whole.tensors.front().tensor});
  old.push_back({"cls.seq_relationship.bias", whole.tensors.front().tensor});
  io::write_safetensors(theirs_ / "model.safetensors", old);
  import_hugging_face(theirs_, run_);
  export_hugging_face(run_, ours_, {}, {});
  lockstep::fixtures::write_model_folder(theirs_, "bert");
  expect_same_tensors(io::ShardedSafetensors(ours_), io::ShardedSafetensors(theirs_));
}

TEST_F(InterchangeFolder, LogitsOfLlamaMayBeTied) {
  auto whole = lockstep::fixtures::tensors_of_fixture("llama");
  std::erase_if(whole.tensors, [](const auto& tensor) { return tensor.name == "lm_head.weight"; });
  io::write_safetensors(theirs_ / "model.safetensors", whole.tensors);
  std::string config = lockstep::fixtures::config_of_fixture("llama");
  const std::string was = "\"tie_word_embeddings\": false";
  write_file(theirs_ / "config.json", config);
  EXPECT_THAT(import_refusal(ErrorCode::kInvalidArgument), HasSubstr("lm_head.weight"));
  config.replace(config.find(was), was.size(), "\"tie_word_embeddings\": true");
  write_file(theirs_ / "config.json", config);
  import_hugging_face(theirs_, run_);
  EXPECT_EQ(stored_options(open_checkpoint(run_, {})).model.tie_word_embeddings, TieChoice::kTied);
  export_hugging_face(run_, ours_, {}, {});
  expect_same_tensors(io::ShardedSafetensors(ours_), io::ShardedSafetensors(theirs_));
  EXPECT_THAT(read_file(ours_ / "config.json"), HasSubstr("\"tie_word_embeddings\": true"));
}

TEST_F(InterchangeFolder, AnIndexIsNotBelieved) {
  fs::rename(theirs_ / "model.safetensors", theirs_ / "model-00001-of-00001.safetensors");
  const auto with_index = [&](const std::string& text) {
    write_file(theirs_ / "model.safetensors.index.json", text);
    return import_refusal(ErrorCode::kProtocol);
  };
  EXPECT_THAT(with_index("["), HasSubstr("not a valid index"));
  EXPECT_THAT(with_index("{}"), HasSubstr("weight_map"));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": 3}})"), HasSubstr("not a string"));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": "../x"}})"),
              HasSubstr("not a file of this folder"));
  EXPECT_THAT(with_index(R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})"),
              HasSubstr("no such tensor"));
  fs::remove(theirs_ / "model.safetensors.index.json");
  EXPECT_THAT(import_refusal(ErrorCode::kInvalidArgument), HasSubstr("neither"));
  write_file(theirs_ / "pytorch_model.bin", "");
  EXPECT_THAT(import_refusal(ErrorCode::kUnsupported), HasSubstr("save_pretrained"));
}

TEST(HuggingFaceConfig, WhatLockstepDoesNotHaveIsRefusedByName) {
  const struct {
    const char* model;
    const char* was;
    const char* is;
    const char* says;
    ErrorCode code = ErrorCode::kUnsupported;
  } cases[] = {
      {"gpt2", "\"gelu_new\"", "\"tanh\"", "activation_function"},
      {"gpt2", "\"n_embd\": 32", "\"n_embd\": \"32\"", "n_embd", ErrorCode::kInvalidArgument},
      {"gpt2", "\"n_embd\": 32", "\"n_embd\": -32", "n_embd", ErrorCode::kInvalidArgument},
      {"gpt2", "\"n_embd\": 32", "\"n_embd\": 3.2", "n_embd", ErrorCode::kInvalidArgument},
      {"gpt2", "\"n_embd\": 32", "\"n_embd\": 99999999999", "n_embd", ErrorCode::kInvalidArgument},
      {"gpt2", "\"n_head\": 4", "\"n_head\": 5", "heads", ErrorCode::kInvalidArgument},
      {"gpt2", "\"n_layer\": 2", "\"n_layers\": 2", "n_layer", ErrorCode::kInvalidArgument},
      {"gpt2", "GPT2LMHeadModel", "GPT2ForSequenceClassification", "GPT2ForSequence"},
      {"gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "scale_attn"},
      {"gpt2", "\"attn_pdrop\": 0", "\"attn_pdrop\": 2", "attn_pdrop", ErrorCode::kInvalidArgument},
      {"llama", "\"rope_type\": \"default\"", "\"rope_type\": \"yarn\"", "rope_parameters"},
      {"llama", "\"rope_type\": \"default\"", "\"rope_type\": \"llama3\"", "no 'factor'",
       ErrorCode::kInvalidArgument},
      {"llama", "\"mlp_bias\": false", "\"rope_scaling\": {\"type\": \"dynamic\"}", "rope_scaling"},
      {"llama3", "\"high_freq_factor\": 3.0", "\"high_freq_factor\": 0.5", "high_freq_factor"},
      {"mistral", "\"sliding_window\": 64", "\"sliding_window\": -3", "sliding_window",
       ErrorCode::kInvalidArgument},
      {"qwen2_window", "\"full_attention\",\n    \"sliding_attention\"",
       "\"sliding_attention\",\n    \"full_attention\"", "layer_types"},
      {"qwen3", "\"attention_bias\": false", "\"attention_bias\": true", "attention_bias"},
      {"qwen3", "\"rope_type\": \"default\"", "\"partial_rotary_factor\": 0.5", "rope_parameters"},
      {"phi3", "\"rope_type\": \"default\"", "\"rope_type\": \"longrope\"", "no 'short_factor'",
       ErrorCode::kInvalidArgument},
      {"phi3_long", "15.5\n", "15.5, 16\n", "6 long factors", ErrorCode::kInvalidArgument},
      {"phi3_long", "15.5\n", "-15.5\n", "long_factor", ErrorCode::kInvalidArgument},
      {"phi3_window", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.3",
       "even number", ErrorCode::kInvalidArgument},
      {"gemma2", "\"full_attention\",\n    \"sliding_attention\"",
       "\"sliding_attention\",\n    \"full_attention\"", "layer_types"},
      {"gemma2", "\"gelu_pytorch_tanh\"", "\"gelu\"", "hidden_activation"},
      {"gemma2", "\"use_bidirectional_attention\": null", "\"use_bidirectional_attention\": true",
       "use_bidirectional_attention"},
      {"gemma2", "\"attn_logit_softcapping\": 1.5", "\"attn_logit_softcapping\": -1.5",
       "attn_logit_softcapping", ErrorCode::kInvalidArgument},
      {"t5", "\"feed_forward_proj\": \"relu\"", "\"feed_forward_proj\": \"gated-silu\"",
       "feed_forward_proj"},
      {"t5", "\"relative_attention_num_buckets\": 10", "\"relative_attention_num_buckets\": 7",
       "even number of buckets", ErrorCode::kInvalidArgument},
      {"t5", "\"num_decoder_layers\": 3", "\"num_decoder_layers\": -1", "num_decoder_layers",
       ErrorCode::kInvalidArgument},
      {"gpt_neox", "\"gelu\"", "\"swish\"", "hidden_act"},
      {"gpt_neox", "\"attention_bias\": true", "\"attention_bias\": false", "attention_bias"},
      {"llama", "\"attention_bias\": false", "\"attention_bias\": true", "attention_bias"},
      {"llama", "\"mlp_bias\": false", "\"mlp_bias\": true", "mlp_bias"},
      {"llama", "\"silu\"", "\"gelu\"", "hidden_act"},
      {"llama", "\"head_dim\": 8", "\"head_dim\": 15", "even width", ErrorCode::kInvalidArgument},
      {"llama", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "heads",
       ErrorCode::kInvalidArgument},
      {"mixtral", "\"router_jitter_noise\": 0.0", "\"router_jitter_noise\": 0.1",
       "router_jitter_noise"},
      {"mixtral", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 6", "6 of 5 experts",
       ErrorCode::kInvalidArgument},
      {"bert", "\"gelu\"", "\"gelu_new\"", "hidden_act"},
      {"bert", "\"type_vocab_size\": 2", "\"type_vocab_size\": 3", "type_vocab_size"},
      {"bert", "\"is_decoder\": false", "\"is_decoder\": true", "is_decoder"},
      {"bert", "{\n", "[\n", "not valid JSON", ErrorCode::kProtocol},
  };
  for (const auto& one : cases) {
    std::string text = lockstep::fixtures::config_of_fixture(one.model);
    const auto at = text.find(one.was);
    ASSERT_NE(at, std::string::npos) << one.was;
    text.replace(at, std::strlen(one.was), one.is);
    EXPECT_THAT(refusal(one.code, [&] { nn::parse_hugging_face_config(text, "config.json"); }),
                HasSubstr(one.says))
        << one.is;
  }
  EXPECT_THAT(refusal(ErrorCode::kProtocol, [] { nn::parse_hugging_face_config("[]", "it"); }),
              HasSubstr("not a JSON object"));
}

TEST(HuggingFaceConfig, IsOfTheClassThatHasTheParts) {
  const auto text_of = [](const plan::ModelShape& shape) {
    return nn::format_hugging_face_config(shape, {}, DType::kF32, {});
  };
  plan::ModelShape shape = plan::find_model("mistral-7b");
  EXPECT_THAT(text_of(shape), HasSubstr("\"LlamaForCausalLM\""));
  shape.window = 4096;
  EXPECT_THAT(text_of(shape), HasSubstr("\"MistralForCausalLM\""));
  EXPECT_THAT(text_of(shape), HasSubstr("\"sliding_window\": 4096"));
  shape.unwindowed_layers = 3;  // which Mistral's class has not
  EXPECT_THAT(refusal(ErrorCode::kUnsupported, [&] { text_of(shape); }),
              HasSubstr("a window of attention from layer 3 on"));
  shape.qkv_biases = true;
  EXPECT_THAT(text_of(shape), HasSubstr("\"Qwen2ForCausalLM\""));
  EXPECT_THAT(text_of(shape), HasSubstr("\"max_window_layers\": 3"));
}

TEST(HuggingFaceConfig, LongRopeHasTheAmplitudeThatFollowsFromTheLengthsOrItsOwn) {
  const auto parse = [](const std::string& rope) {
    return nn::parse_hugging_face_config(
        R"({"model_type": "phi3", "vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 1,
            "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 131072,
            "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
            "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5],
                             "long_factor": [2, 30])" +
            rope + R"(}})",
        "config.json");
  };
  // That of Phi-3-mini-128k: sqrt(1 + ln 32 / ln 4096).
  const auto usual = parse("");
  ASSERT_TRUE(usual.options.long_rope);
  EXPECT_EQ(usual.options.long_rope->original_positions, 4096);
  EXPECT_FLOAT_EQ(usual.options.long_rope->amplitude, 1.1902381f);
  const auto own = parse(R"(, "attention_factor": 1.5)");
  EXPECT_FLOAT_EQ(own.options.long_rope->amplitude, 1.5f);
  const auto written = [](const nn::HuggingFaceConfig& config) {
    return nn::format_hugging_face_config(config.shape, config.options, DType::kF32, {});
  };
  // Older versions of transformers allow three keys.
  EXPECT_THAT(written(usual), HasSubstr("\"type\": \"longrope\""));
  EXPECT_THAT(written(own), ::testing::Not(HasSubstr("\"type\": \"longrope\"")));
  for (const auto& config : {usual, own}) {
    const auto again = nn::parse_hugging_face_config(written(config), "config.json");
    ASSERT_TRUE(again.options.long_rope);
    EXPECT_EQ(again.options.long_rope->amplitude, config.options.long_rope->amplitude);
    EXPECT_EQ(again.options.long_rope->long_factors, config.options.long_rope->long_factors);
    EXPECT_EQ(again.options.long_rope->original_positions, 4096);
  }
}

TEST(HuggingFaceConfig, OlderFilesSayTheBaseOfRotaryPositionsElsewhere) {
  const auto config = nn::parse_hugging_face_config(
      R"({"model_type": "llama", "vocab_size": 7, "hidden_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "intermediate_size": 16, "rope_theta": 500000.0,
          "rope_scaling": null, "tie_word_embeddings": true})",
      "config.json");
  EXPECT_EQ(config.options.theta, 500000.f);
  EXPECT_EQ(config.options.epsilon, 1e-6f);
  EXPECT_EQ(config.shape.kv_heads, 2u);
  EXPECT_EQ(plan::name(config.shape.head), "tied");
}

}  // namespace lockstep::train::interchange_test
