// lockstep generate as people call it, on a checkpoint of a tiny model and on the same model as
// Hugging Face's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/data/tokenizer/tokenizer.h"
#include "lockstep/nn/hugging_face/config.h"
#include "lockstep/nn/hugging_face/hugging_face.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/model_io/saved_model.h"
#include "lockstep/train/options/run_options.h"
#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep::generate_proc_test {
namespace {

namespace fs = std::filesystem;
using lockstep::testing::Outcome;
using lockstep::testing::run_lockstep;
using lockstep::testing::shell;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kLetters = "\n abcdefghijklm\u00e9\u20ac";
constexpr const char* kModel = R"([model]
family = "gpt2"
layers = 2
hidden = 16
heads = 2
vocabulary = 17
positions = 32
)";

class Generate : public ::testing::Test {
 protected:
  void SetUp() override { save_run(); }

  void save_run() {
    train::RunOptions options;
    Config config;
    train::bind(config, options);
    config.read_toml(kModel, "test");
    const auto ops = make_reference_ops();
    nn::Model model = train::model_of(options.train);
    nn::MemoryPlan plan = nn::plan_memory(model, {.shape = {.batch = 1, .sequence = 4}}, *ops,
                                          nn::OptimizerState::kNone);
    nn::Replica replica(std::move(model), std::move(plan), *ops);
    replica.initialise(5);
    for (float& weight : replica.states().master.as<float>()) weight *= 20;
    train::CheckpointFolder(run()).save(
        replica,
        {.state = {.steps = 3, .updates = 3},
         .config = config.resolved(),
         .tokenizer = data::make_character_tokenizer(kLetters)->json()},
        {});
  }

  fs::path run() const { return folder_ / "run"; }
  // What goes to standard output alone.
  std::string text_of(const std::string& arguments) const {
    const Outcome outcome =
        shell(in_build("lockstep") + " generate --threads 1 " + arguments + " 2>/dev/null");
    EXPECT_EQ(outcome.exit_code, 0) << arguments;
    return outcome.text;
  }
  Outcome generate(const std::string& arguments) const {
    return run_lockstep("generate --threads 1 " + arguments);
  }

  ScratchFolder scratch_;
  const std::filesystem::path& folder_ = scratch_.path();
};

TEST_F(Generate, ContinuesThePromptWhereverItComesFrom) {
  const std::string model = run().string() + " --tokens 20 --precision f32";
  const std::string text = text_of(model + " 'ab cd' </dev/null");
  EXPECT_TRUE(text.starts_with("ab cd")) << text;
  EXPECT_GT(text.size(), 20u);
  write_file(folder_ / "prompt", "ab cd\n");
  EXPECT_EQ(text_of("--prompt-file " + (folder_ / "prompt").string() + " " + model), text);
  EXPECT_EQ(text_of(model + " < " + (folder_ / "prompt").string()), text);
  EXPECT_EQ(text_of(model + " - < " + (folder_ / "prompt").string()), text);
  EXPECT_EQ(text_of((run() / "checkpoints/step-00000003").string() +
                    " --tokens 20 --precision f32 'ab cd'"),
            text);
}

TEST_F(Generate, TheSameSeedWritesTheSameTextsAndTheNextAnother) {
  const std::string three =
      text_of(run().string() + " a --tokens 12 --temperature 4 --count 3 --seed 4");
  const std::string first = text_of(run().string() + " a --tokens 12 --temperature 4 --seed 4");
  const std::string second = text_of(run().string() + " a --tokens 12 --temperature 4 --seed 5");
  EXPECT_NE(first, second);
  EXPECT_TRUE(three.starts_with(first + "\n---\n" + second + "\n---\n")) << three;
}

TEST_F(Generate, ReadsTheSameModelAsHuggingFaceHasIt) {
  const train::SavedModel saved = train::open_model(run(), [](const std::string&) {});
  const auto ops = make_reference_ops();
  const nn::Weights weights = train::load_weights(saved, DType::kF32, *ops);
  train::RunOptions options;
  Config config;
  train::bind(config, options);
  config.read_toml(kModel, "test");
  const fs::path foreign = folder_ / "foreign";
  fs::create_directory(foreign);
  const plan::ModelShape shape = train::shape_of(options.train);
  const io::SafetensorsFile states(run() / "checkpoints/step-00000003/states.safetensors");
  nn::write_hugging_face(foreign, shape, weights.flat(), states, {.shard_bytes = 1 << 20});
  write_file(foreign / "config.json", nn::format_hugging_face_config(shape, {}, DType::kF32, {}));
  EXPECT_THAT(generate(foreign.string() + " a").text, HasSubstr("has no tokenizer.json"));
  write_file(foreign / "tokenizer.json", saved.tokenizer->json());
  const std::string rest = " 'abc' --tokens 20 --precision f32 --temperature 0";
  EXPECT_EQ(text_of(foreign.string() + rest), text_of(run().string() + rest));
}

TEST_F(Generate, SaysHowFastItWasAndGoesOnWhenTheContextIsFull) {
  const Outcome some = generate(run().string() + " ab --tokens 3");
  EXPECT_EQ(some.exit_code, 0);
  EXPECT_THAT(some.text, HasSubstr("3 tokens at "));
  EXPECT_THAT(some.text, HasSubstr("after a prompt of 2 in "));
  const Outcome all = generate(run().string() + " ab --tokens 100");
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(all.text, HasSubstr("100 tokens at ")) << "the model has 32 positions";
}

TEST_F(Generate, TranslatesWhatItLearnedLineByLine) {
  write_file(folder_ / "pairs.tsv",
             "one\teins\ntwo\tzwei\nthree\tdrei\nfour\tvier\nfive\tf\u00fcnf\n");
  const std::string run = (folder_ / "translator").string();
  const Outcome trained = run_lockstep(
      "train data.pairs=" + (folder_ / "pairs.tsv").string() + " run.dir=" + run +
      " data.tokenizer=character data.validation_fraction=0 model.family=encoder-decoder "
      "model.layers=1 model.hidden=32 model.heads=2 model.feed_forward=64 train.seq_len=8 "
      "train.global_batch_size=5 train.steps=150 train.precision=f32 train.threads=1 "
      "optimizer.learning_rate=5e-3");
  ASSERT_EQ(trained.exit_code, 0) << trained.text;
  write_file(folder_ / "english", "five\nthree\none\n");
  for (const std::string precision : {"f32", "bf16", "f16"}) {
    EXPECT_EQ(text_of(run + " --precision " + precision + " < " + (folder_ / "english").string()),
              "f\u00fcnf\ndrei\neins\n")
        << precision;
  }
  EXPECT_EQ(text_of(run + " four --tokens 2"), "vi\n");
  const std::string drawn = text_of(run + " two --temperature 5 --count 4 --seed 3");
  EXPECT_GE(std::ranges::count(drawn, '\n'), 4);  // a line's end is a letter that may be drawn, too
  EXPECT_EQ(drawn, text_of(run + " two --temperature 5 --count 4 --seed 3"));
  EXPECT_NE(drawn, "zwei\nzwei\nzwei\nzwei\n");
  EXPECT_THAT(generate(run + " oneoneon").text, HasSubstr("trained to read up to 7"));
  EXPECT_THAT(generate(run + " '' </dev/null").text, HasSubstr("the text to translate is empty"));
  const Outcome exported = run_lockstep("export " + run + " " + (folder_ / "out").string());
  EXPECT_EQ(exported.exit_code, 2);
  EXPECT_THAT(
      exported.text,
      HasSubstr("of family encoder-decoder, for which Hugging Face transformers has no class"));
}

TEST_F(Generate, RefusesWhatCannotBe) {
  const auto refused = [&](const std::string& arguments, const std::string& why) {
    const Outcome outcome = generate(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr(why));
  };
  refused((folder_ / "nothing").string() + " a", "is not a folder");
  refused(run().string() + " a --temperature -1", "temperature is -1");
  refused(run().string() + " a --top-p 2", "top-p is 2");
  refused(run().string() + " a --precision f8", "--precision is 'f8'");
  refused(run().string() + " a --prompt-file x", "--prompt-file");
  refused(run().string() + " XYZ", "X");  // no letter of its tokenizer
  const std::string too_long(32, 'a');
  refused(run().string() + " " + too_long, "fills the context");
  EXPECT_THAT(generate(run().string() + " " + too_long).text, Not(HasSubstr(too_long)));
  refused(run().string() + " --tokens 3 </dev/null", "give a prompt");
}

}  // namespace
}  // namespace lockstep::generate_proc_test
