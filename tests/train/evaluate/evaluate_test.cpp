// Evaluations give the validation losses of runs, the losses of transformers, and numbers that a
// plain loop over the logits gives.
#include "lockstep/train/evaluate/evaluate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/comm/native/threads.h"
#include "lockstep/data/token_file/writer.h"
#include "lockstep/train/evaluate/counted_targets.h"
#include "lockstep/train/run/start.h"
#include "tests/train/model_io/hugging_face_fixture.h"
#include "tests/train/model_io/hugging_face_folder.h"
#include "tests/train/run/recorded_run.h"

namespace lockstep::train {
namespace {

using ::testing::HasSubstr;

std::optional<Evaluation> evaluate_by(RunGroup group, const EvaluationRequest& request) {
  const StopSignal stop;
  return evaluate(request, group, stop, {});
}

Evaluation evaluated(const EvaluationRequest& request) {
  const auto made = evaluate_by(RunGroup(nullptr), request);
  EXPECT_TRUE(made.has_value());
  return made.value();
}

// By ranks that are threads, as all of them found it.
std::vector<Evaluation> evaluated_by(int ranks, const EvaluationRequest& request) {
  std::vector<Evaluation> all(static_cast<std::size_t>(ranks));
  const StopSignal stop;
  CommOptions comm;
  comm.measure = false;
  run_threads(
      ranks,
      [&](Communicator& world) {
        all[static_cast<std::size_t>(world.rank())] =
            evaluate(request, RunGroup(&world), stop, {}).value();
      },
      comm);
  return all;
}

class Evaluations : public RecordedRun {
 protected:
  double last_validation() const { return recorder->validation.rbegin()->second; }
  std::string path(const char* name) const { return (folder / name).string(); }
};

TEST_F(Evaluations, OfWhatARunHoldsBackAreItsValidationLossToTheBit) {
  struct Kind {
    const char* name;
    std::vector<std::string> settings;
  };
  const std::vector<Kind> kinds = {
      {"plain", {}},
      {"all_held_back", {"train.validate_batches=0", "train.micro_batch_size=4"}},
      {"odd", {"train.validate_batches=0", "train.micro_batch_size=1", "train.seq_len=7"}},
      {"bf16", {"train.precision=bf16", "model.family=llama"}},
      {"masked", {"model.family=bert", "train.validate_batches=0"}},
      {"own_file", {"data.validation_text=" + path("other.txt"), "train.validate_batches=0"}},
      {"bpe", {"data.tokenizer=bpe", "data.bpe_vocabulary=300"}},
  };
  write_file(folder / "other.txt", "the lazy dogs jump over the quick brown fox 12 times\n");
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    run(tiny(kind.name), kind.settings, &recorder);
    const EvaluationRequest request{.model = folder / kind.name};
    const Evaluation made = evaluated(request);
    EXPECT_EQ(made.loss, last_validation());
    EXPECT_EQ(made.step, 12);
    EXPECT_EQ(made.perplexity, std::exp(made.loss));
    // Whatever is saved meanwhile, a checkpoint by its own path is the same.
    EXPECT_EQ(evaluated({.model = folder / kind.name / "checkpoints" / "step-00000012"}).loss,
              made.loss);
    for (const int ranks : {2, 3}) {
      for (const Evaluation& one : evaluated_by(ranks, request)) {
        EXPECT_EQ(one.loss, made.loss) << ranks;
        EXPECT_EQ(one.targets, made.targets) << ranks;
        EXPECT_EQ(one.bytes, made.bytes) << ranks;
        EXPECT_EQ(one.accuracy, made.accuracy) << ranks;
      }
    }
  }
}

TEST_F(Evaluations, OfPairsAndTablesAreTheValidationLoss) {
  std::string pairs;
  std::string table;
  for (int i = 0; i < 60; ++i) {
    pairs += fmt::format("fox {}\tdog {}\n", i, 60 - i);
    table += fmt::format("{},{},{}\n", i, i * i % 7, 3 * i + 1);
  }
  write_file(folder / "pairs.tsv", pairs);
  write_file(folder / "table.csv", table);
  run({"data.pairs=" + path("pairs.tsv"), "data.tokenizer=character",
       "model.family=encoder-decoder", "model.layers=1", "model.hidden=16", "model.heads=2",
       "train.seq_len=8", "train.global_batch_size=4", "train.micro_batch_size=2",
       "train.precision=f32", "train.threads=1", "train.steps=3", "train.validate_batches=0",
       "run.dir=" + path("pairs")},
      {}, &recorder);
  EXPECT_EQ(evaluated({.model = folder / "pairs"}).loss, last_validation());
  const Evaluation all =
      evaluated({.model = folder / "pairs", .settings = {"data.pairs=" + path("pairs.tsv")}});
  EXPECT_EQ(all.sequences, 60u);

  run({"data.table=" + path("table.csv"), "model.family=linear", "train.global_batch_size=4",
       "train.precision=f32", "train.threads=1", "train.steps=3", "train.validate_batches=0",
       "run.dir=" + path("table")},
      {}, &recorder);
  const Evaluation table_made = evaluated({.model = folder / "table"});
  EXPECT_EQ(table_made.loss, last_validation());
  EXPECT_FALSE(table_made.perplexity);
  EXPECT_THAT(
      error_of([&] {
        evaluated({.model = folder / "table", .settings = {"data.table=" + path("table.csv")}});
      }),
      HasSubstr("are scaled by the rows that a run was trained on"));
}

TEST_F(Evaluations, TakeACheckpointByItsStepAndTheBest) {
  run(tiny("run"), {"train.validate_every=5", "checkpoint.keep_last=9"}, &recorder);
  ASSERT_EQ(recorder->validation.size(), 3u);
  auto best = recorder->validation.begin();
  for (auto one = best; one != recorder->validation.end(); ++one) {
    EXPECT_EQ(evaluated({.model = folder / "run", .checkpoint = std::to_string(one->first)}).loss,
              one->second);
    if (one->second < best->second) best = one;
  }
  const Evaluation found = evaluated({.model = folder / "run", .checkpoint = "best"});
  EXPECT_EQ(found.step, best->first);
  EXPECT_EQ(found.loss, best->second);
  EXPECT_THAT(error_of([&] { evaluated({.model = folder / "run", .checkpoint = "7"}); }),
              HasSubstr("has no checkpoint of step 7: it has those of the steps 5, 10, 12"));
}

TEST_F(Evaluations, OfImportedModelsAreTheLossesOfTransformers) {
  for (const std::string name : {"gpt2", "llama", "mixtral"}) {
    SCOPED_TRACE(name);
    fixtures::write_model_folder(folder / name, name);
    const Fixture fixture(name);
    const auto tokens = fixture.batch.tokens.as<const std::int32_t>();
    const auto length = static_cast<std::size_t>(fixture.batch.shape.sequence);
    double sum = 0;
    for (std::int64_t row = 0; row < fixture.batch.shape.batch; ++row) {
      const std::string file = path(fmt::format("{}{}.tokens", name, row).c_str());
      data::TokenWriter writer(file, {.vocabulary = 97, .tokenizer_hash = ""});
      writer.append(tokens.subspan(static_cast<std::size_t>(row) * length, length));
      writer.finish();
      const Evaluation made =
          evaluated({.model = folder / name,
                     .settings = {"data.tokens=" + file,
                                  fmt::format("train.seq_len={}", length - 1), "train.threads=1"}});
      EXPECT_EQ(made.targets, length - 1);
      EXPECT_FALSE(made.bits_per_byte) << "there is no tokenizer";
      sum += made.loss;
    }
    const double loss = fixture.floats("loss").at(0);
    EXPECT_NEAR(sum / static_cast<double>(fixture.batch.shape.batch), loss, 2e-6 * loss);
  }
}

TEST_F(Evaluations, OfNamedTextTakeAllOfItAndCountItsBytes) {
  run(tiny("run"), {"data.tokenizer=byte"}, &recorder);
  const std::string text = "dogs over foxes \xc3\xa9\n";
  write_file(folder / "new.txt", text);
  const EvaluationRequest request{.model = folder / "run",
                                  .settings = {"data.text=" + path("new.txt")}};
  const Evaluation made = evaluated(request);
  EXPECT_EQ(made.targets, text.size() - 1) << "nothing predicts the first";
  EXPECT_EQ(made.bytes, text.size() - 1);
  EXPECT_EQ(made.sequences, (text.size() - 1 + 7) / 8);
  EXPECT_NEAR(made.bits_per_byte.value(), made.loss / std::numbers::ln2, 1e-12);
  // The run's own file by its name is all of it, too.
  EXPECT_GT(
      evaluated({.model = folder / "run", .settings = {"data.text=" + path("text.txt")}}).targets,
      evaluated({.model = folder / "run", .batches = 0}).targets * 9);
  // Shorter than a sequence.
  const Evaluation one = evaluated(
      {.model = folder / "run",
       .settings = {"data.text=" + path("new.txt"), "train.seq_len=8", "train.precision=bf16"},
       .batches = 1});
  EXPECT_EQ(one.sequences, 2u) << "a micro-batch";
  EXPECT_EQ(one.precision, "bf16");
}

TEST_F(Evaluations, OfMultibyteTokensHaveTheBytesOfTheText) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += fmt::format("caf\u00e9 {} for \u20ac{}\n", i, i % 9);
  write_file(folder / "euro.txt", text);
  for (const char* tokenizer : {"character", "bpe"}) {
    SCOPED_TRACE(tokenizer);
    run(tiny(tokenizer),
        {"data.text=" + path("euro.txt"), fmt::format("data.tokenizer={}", tokenizer),
         "data.bpe_vocabulary=400", "train.steps=1"},
        &recorder);
    const Evaluation made =
        evaluated({.model = folder / tokenizer, .settings = {"data.text=" + path("euro.txt")}});
    EXPECT_LT(made.targets, text.size());
    // All but the first token's, which is a character or a merge of some.
    EXPECT_LT(made.bytes, text.size());
    EXPECT_GT(made.bytes + 16, text.size());
    EXPECT_NEAR(made.bits_per_byte.value() * static_cast<double>(made.bytes) * std::numbers::ln2,
                made.loss * static_cast<double>(made.targets), 1e-6);
  }
}

// Of every kind of tokenizer: blanks at the front that are dropped, bytes as tokens, gaps in the
// ids.
TEST(BytesOfTokens, AddUpToTheTextBehindTheFirstOne) {
  const auto fixture =
      nlohmann::json::parse(read_file(in_sources("tests/fixtures/tokenizers.json")));
  int compared = 0;
  for (const auto& entry : fixture["entries"]) {
    nlohmann::json file = fixture["bases"][entry["base"].get<std::string>()];
    for (const auto& [key, value] : entry["replaced"].items()) file[key] = value;
    const auto tokenizer = data::parse_tokenizer(file.dump(), "fixture");
    const std::vector<std::uint32_t> bytes = bytes_of_tokens(*tokenizer);
    EXPECT_EQ(bytes.empty(), tokenizer->kind() == "wordpiece") << entry["name"];
    if (bytes.empty()) continue;
    for (const auto& text : fixture["texts"]) {
      std::vector<data::TokenId> ids;
      tokenizer->encode(text.get<std::string>(), ids);
      if (ids.size() < 2) continue;
      std::string all;
      std::string first;
      tokenizer->decode(ids, all);
      tokenizer->decode({ids.data(), 1}, first);
      std::size_t behind = 0;
      bool special = false;
      for (std::size_t i = 1; i < ids.size(); ++i) {
        behind += bytes[static_cast<std::size_t>(ids[i])];
        special = special || bytes[static_cast<std::size_t>(ids[i])] == 0;
      }
      if (special) continue;
      EXPECT_EQ(behind, all.size() - first.size()) << entry["name"] << ": " << text;
      ++compared;
    }
  }
  EXPECT_GT(compared, 50);
}

// Of the reference operations, by a loop over all logits.
TEST_F(Evaluations, CountMaskedTokensThatAreTheLikeliest) {
  run(tiny("bert"),
      {"model.family=bert", "train.steps=60", "optimizer.learning_rate=0.02", "model.dropout=0",
       "train.validate_batches=0"},
      &recorder);
  const EvaluationRequest request{.model = folder / "bert"};
  const Evaluation made = evaluated(request);

  EvaluationSettings settings = evaluation_settings(
      request, folder / "bert" / "checkpoints" / "step-00000060", [](const std::string&) {});
  TrainOptions& train = settings.options.train;
  const Dataset dataset = open_dataset(settings.options.data, folder / "cache");
  train = with_data(train, dataset);
  const auto ops = make_reference_ops();
  nn::Model model = whole_model_of(train);
  nn::MemoryPlan plan = nn::plan_memory(model, setup_of(train), *ops, nn::OptimizerState::kNone);
  nn::Replica replica(std::move(model), std::move(plan), *ops);
  read_parameters(settings.checkpoint.value(), replica.flat(), replica.states().master);
  const auto source = make_source(train, dataset, replica.setup().shape);
  const std::int64_t classes = vocabulary_of(train);
  const std::int64_t tokens = replica.setup().shape.tokens();
  std::vector<float> logits(static_cast<std::size_t>(tokens * classes));
  std::uint64_t asked = 0;
  std::uint64_t right = 0;
  for (std::uint64_t i = 0; i < source->validation_batches(); ++i) {
    const nn::Batch batch = source->validation(i);
    replica.evaluate(batch, tensor_of(std::span(logits), {tokens, classes}));
    const auto targets = batch.targets.as<const std::int32_t>();
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t target = targets[static_cast<std::size_t>(t)];
      if (target == ops::kNoTarget) continue;
      ++asked;
      const float* row = logits.data() + t * classes;
      right += std::count_if(row, row + classes, [&](float x) { return x >= row[target]; }) == 1;
    }
  }
  EXPECT_EQ(made.targets, asked);
  EXPECT_GT(right, asked / 20) << "it has learned something";
  EXPECT_LT(right, asked);
  // Two logits that are nearly equal may be in another order.
  EXPECT_NEAR(made.accuracy.value() * static_cast<double>(asked), static_cast<double>(right), 1.01);
  EXPECT_FALSE(made.bits_per_byte);
}

TEST_F(Evaluations, ChangeNothingInTheRunsFolder) {
  run(tiny("run"), {"train.steps=2"}, &recorder);
  const auto listing = [&] {
    std::vector<std::string> names;
    for (const auto& one : std::filesystem::recursive_directory_iterator(folder / "run")) {
      names.push_back(fmt::format("{} {}", one.path().string(),
                                  one.last_write_time().time_since_epoch().count()));
    }
    std::ranges::sort(names);
    return names;
  };
  const auto before = listing();
  write_file(folder / "new.txt", "the dogs\n");
  evaluated({.model = folder / "run"});
  evaluated({.model = folder / "run", .settings = {"data.text=" + path("new.txt")}});
  EXPECT_EQ(listing(), before);
}

TEST_F(Evaluations, RefuseWhatCannotBe) {
  run(tiny("run"), {"train.steps=2"}, &recorder);
  write_file(folder / "new.txt", "the dogs\n");
  write_file(folder / "strange.txt", "XYZ\n");
  const auto why = [&](const std::filesystem::path& model, std::vector<std::string> settings,
                       const char* checkpoint = "") {
    return error_of([&] {
      evaluated({.model = model, .checkpoint = checkpoint, .settings = std::move(settings)});
    });
  };
  const auto run_folder = folder / "run";
  EXPECT_THAT(why(folder / "nothing", {}), HasSubstr("is not a folder"));
  EXPECT_THAT(why(run_folder, {"parallel.zero=3"}), HasSubstr("parallel.zero has no effect"));
  EXPECT_THAT(why(run_folder, {"model.layers=3"}), HasSubstr("model.layers has no effect"));
  EXPECT_THAT(why(run_folder, {"train.seq_len=9"}), HasSubstr("9"));
  EXPECT_THAT(why(run_folder, {"data.text=" + path("strange.txt")}), HasSubstr("X"));
  EXPECT_THAT(why(run_folder, {"data.text=" + path("new.txt"), "data.tokenizer=byte"}),
              HasSubstr("is not the one that the model"));
  EXPECT_THAT(why(run_folder, {"train.precision=fp8"}), HasSubstr("bf16"));
  EXPECT_THAT(why(run_folder, {}, "best"), Not(HasSubstr("none is the best")))
      << "the last validation is that of the last checkpoint";
  EXPECT_THAT(why(run_folder / "checkpoints" / "step-00000002", {}, "best"),
              HasSubstr("is not the folder of a run"));
  EXPECT_THAT(why(run_folder, {}, "nonsense"), HasSubstr("neither newest nor best"));
  fixtures::write_model_folder(folder / "gpt2", "gpt2");
  EXPECT_THAT(why(folder / "gpt2", {}), HasSubstr("Give some to evaluate it on"));
  EXPECT_THAT(why(folder / "gpt2", {"data.text=" + path("new.txt")}),
              HasSubstr("has no tokenizer"));
}

}  // namespace
}  // namespace lockstep::train
