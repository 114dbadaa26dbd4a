// lockstep plan as people and programs call it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Outcome;
using testing::shell;

// What it prints to stdout; with `errors` to stderr.
Outcome run(const std::string& arguments, bool errors = false) {
  return shell(in_build("lockstep") + " plan " + arguments +
               (errors ? " 2>&1 >/dev/null" : " 2>/dev/null"));
}

nlohmann::json run_json(const std::string& arguments) {
  const Outcome outcome = run(arguments + " --json");
  EXPECT_EQ(outcome.exit_code, 0);
  return nlohmann::json::parse(outcome.text, nullptr, false);
}

TEST(Plan, TellsOfGpt3) {
  const Outcome outcome =
      run("--model gpt3-175b --memory 80GiB --tokens 300e9 --gpu-flops 160e12 --days 30");
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.text, HasSubstr("174,604,259,328  175 billion"));
  EXPECT_THAT(outcome.text, HasSubstr("2P  349 GB    349,208,518,656"));
  EXPECT_THAT(outcome.text, HasSubstr("757.8 GPUs, so 758 (95 nodes of 8)"));
  EXPECT_THAT(outcome.text, HasSubstr("2,868,903,936"));  // activations of a layer
  EXPECT_THAT(outcome.text, HasSubstr("fewest ranks that fit 85.9 GB (85,899,345,920 bytes)"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("GiB"))) << "two units in one table";
}

TEST(Plan, PrintsTheGigabytesOfTheZeroPaper) {
  const Outcome outcome = run("--parameters 7.5e9 --ranks 64");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* bytes : {" 120 GB ", " 31.4 GB ", " 16.6 GB ", " 1.9 GB "}) {
    EXPECT_THAT(outcome.text, HasSubstr(bytes));
  }
}

TEST(Plan, KnowsTheEncoderDecoder) {
  const std::string flags = "--family encoder-decoder --layers 6 --hidden 512 --heads 8";
  const auto counted = run_json(flags + " --ranks 1");
  EXPECT_EQ(counted["parameters"]["total"], 63'215'616);
  EXPECT_EQ(counted["shape"]["family"], "encoder-decoder");
  EXPECT_EQ(counted["shape"]["decoder_layers"], 6);
  const auto planned = run_json(
      "model.family=encoder-decoder model.vocabulary=37000 model.layers=6 model.hidden=512 "
      "model.heads=8 train.seq_len=128 train.micro_batch_size=1");
  EXPECT_EQ(planned["parameters"], counted["parameters"]["total"]);
  const Outcome text = run(flags + " --tokens 1e9 --gpu-flops 1e14 --days 1");
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.text, AllOf(HasSubstr("family encoder-decoder, 6 + 6 layers"),
                               HasSubstr("activations kept for backward")));
  EXPECT_THAT(run(flags + " --kv-heads 2", true).text, HasSubstr("leave --head, --kv-heads"));
}

TEST(Plan, KnowsT5) {
  const std::string flags = "--family t5-v1.1 --layers 8 --hidden 512 --heads 6 --head-size 64";
  const auto counted = run_json(flags + " --ff 1024 --ranks 1");
  EXPECT_EQ(counted["parameters"]["total"], 76'961'152);
  EXPECT_EQ(counted["shape"]["family"], "t5-v1.1");
  EXPECT_EQ(counted["shape"]["decoder_layers"], 8);
  EXPECT_EQ(counted["shape"]["relative_buckets"], 32);
  EXPECT_EQ(run_json("--model flan-t5-small --ranks 1")["parameters"]["total"], 76'961'152);
  const auto planned =
      run_json("model.name=flan-t5-small train.seq_len=64 train.micro_batch_size=1");
  EXPECT_EQ(planned["parameters"], 76'961'152);
}

TEST(Plan, TakesAModelByItsSizes) {
  const auto own = run_json(
      "--family llama --layers 80 --hidden 8192 --heads 64 --kv-heads 8 --ff 28672 "
      "--vocabulary 32000 --seq 4096");
  EXPECT_EQ(own["parameters"]["total"], 68'976'648'192);
  EXPECT_EQ(own["shape"]["head"], "own");
  EXPECT_EQ(own["shape"]["biases"], false);
  const auto named = run_json("--model llama2-70b");
  EXPECT_EQ(own["states"], named["states"]);
  EXPECT_EQ(own["activations"], named["activations"]);
  EXPECT_EQ(own["flops"], named["flops"]);
}

TEST(Plan, FillsInWhatIsUsual) {
  const auto plan = run_json("--layers 12 --hidden 768 --heads 12");
  EXPECT_EQ(plan["parameters"], run_json("--model gpt2-124m")["parameters"]);
  EXPECT_EQ(plan["shape"]["family"], "gpt2");
  EXPECT_EQ(plan["activations"]["sequence"], 1024);
}

TEST(Plan, JsonHasAllOfIt) {
  const auto plan = run_json(
      "--model gpt2-124m --batch 4 --seq 512 --ranks 2,8 --memory 1GiB "
      "--tokens 10e9 --gpu-flops 50e12 --gpus 8 --days 1");
  EXPECT_EQ(plan["model"], "gpt2-124m");
  EXPECT_EQ(plan["parameters"]["total"], 124'439'808);
  EXPECT_EQ(plan["bytes"]["total"], 16 * 124'439'808ll);
  EXPECT_EQ(plan["memory"], 1 << 30);
  ASSERT_EQ(plan["states"].size(), 8u);
  const auto& last = plan["states"][7];
  EXPECT_EQ(last["ranks"], 8);
  EXPECT_EQ(last["zero"], 3);
  EXPECT_EQ(last["bytes"]["total"], 2 * 124'439'808ll);
  EXPECT_EQ(last["traffic_multiple"], 3);
  EXPECT_EQ(last["fits_states"], true);
  EXPECT_EQ(last["fits"]["none"], false);
  EXPECT_EQ(last["fits"]["full"], true);
  EXPECT_EQ(plan["fewest_ranks"][0]["full"], nullptr);
  EXPECT_EQ(plan["activations"]["recompute"]["full"]["bytes"], 12 * 2 * 512 * 4 * 768);
  EXPECT_EQ(plan["flops"]["tokens_per_step"], 2048);
  EXPECT_DOUBLE_EQ(plan["flops"]["per_step"],
                   2048 * plan["flops"]["per_token"]["total"].get<double>());
  EXPECT_DOUBLE_EQ(plan["training"]["rule"]["flops"], 6.0 * 124'439'808 * 10e9);
  EXPECT_EQ(plan["training"]["rule"]["gpus_whole"], 2);
  EXPECT_NEAR(plan["training"]["rule"]["days"].get<double>(), 0.216, 0.001);
}

TEST(Plan, JsonOfABareCountHasWhatFollowsFromIt) {
  const auto plan = run_json("--parameters 175e9 --tokens 300e9 --gpu-flops 160T --days 30");
  EXPECT_EQ(plan["model"], nullptr);
  EXPECT_EQ(plan["bytes"]["parameters"], 350'000'000'000);
  EXPECT_FALSE(plan.contains("activations"));
  EXPECT_NEAR(plan["training"]["rule"]["gpus"].get<double>(), 759.5486, 1e-4);
  EXPECT_EQ(plan["training"]["rule"]["gpus_whole"], 760);
}

TEST(Plan, RefusesWithASentence) {
  const struct {
    const char* arguments;
    const char* said;
  } cases[] = {
      {"", "no model is given"},
      {"--model gpt2-124", "did you mean gpt2-124m?"},
      {"--model gpt2-124m --layers 3", "already has its sizes"},
      {"--model gpt2-124m --parameters 7e9",
       "--parameters is for a model of which only the count is known"},
      {"--parameters many", "--parameters: 'many'"},
      {"--layers 3", "needs --layers, --hidden and --heads"},
      {"--layers 0 --hidden 64 --heads 4", "--layers: '0'"},
      {"--layers 2.5 --hidden 64 --heads 4", "--layers: '2.5'"},
      {"--layers 2 --hidden 65 --heads 4", "65 cannot be split into 4"},
      {"--layers 1e15 --hidden 1e15 --heads 1", "more than 2^64"},
      {"--model gpt2-124m --seq 1025", "longer than the 1024 positions"},
      {"--model gpt2-124m --ranks 4,-8", "--ranks: '-8'"},
      {"--model gpt2-124m --memory lots", "--memory: 'lots'"},
      {"--model gpt2-124m --budget 12.5", "--budget: '12.5' is not a whole number of bytes; write"},
      {"--model gpt2-124m --budget 1GB --memory 1GB", "--memory and --budget mean the same"},
      {"--model gpt2-124m --precision f64", "unknown precision 'f64'"},
      {"--model gpt2-124m --days 30", "--tokens, --gpu-flops"},
      {"--model gpt2-124m --tokens 1e9 --gpu-flops 1e12", "one of --days and --gpus"},
      {"--model gpt2-124m --tokens 1e9 --gpu-flops 1e-9 --days 1e-9", "check the tokens"},
      {"--model gpt2-124m --tokens 1e300", "too large"},
      {"--modle gpt2-124m", "--modle"},
  };
  for (const auto& one : cases) {
    const Outcome outcome = run(one.arguments, true);
    EXPECT_EQ(outcome.exit_code, 2) << one.arguments;
    EXPECT_THAT(outcome.text, HasSubstr(one.said)) << one.arguments;
    EXPECT_EQ(run(one.arguments).text, "") << one.arguments;
  }
}

class PlanOfARun : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (folder_.path() / "job.toml").string();
    std::ofstream(path_) << "[model]\nlayers = 3\nhidden = 64\nheads = 4\nvocabulary = 500\n"
                            "[train]\nprecision = 'f32'\nmicro_batch = 4\nseq = 32\n";
  }
  ScratchFolder folder_;
  std::string path_;
};

TEST_F(PlanOfARun, TellsEveryClassOfBuffersAndTheyAddUp) {
  const auto plan = run_json(path_ + " train.gradient_accumulation_steps=3");
  std::size_t sum = 0;
  std::string classes;
  for (const auto& one : plan["classes"]) {
    sum += one["bytes"].get<std::size_t>();
    classes += one["class"].get<std::string>() + "\n";
  }
  EXPECT_EQ(sum, plan["bytes"]);
  for (const char* one :
       {"parameters", "gradients", "optimizer", "activations layer.2", "workspace"}) {
    EXPECT_THAT(classes, HasSubstr(one));
  }
  EXPECT_EQ(plan["precision"], "f32");
  EXPECT_EQ(plan["accumulation"], 3);
  const auto one_micro_batch = run_json(path_);
  EXPECT_DOUBLE_EQ(plan["flops"]["total"], 3 * one_micro_batch["flops"]["total"].get<double>());
  EXPECT_EQ(
      plan["parameters"],
      run_json(
          "--layers 3 --hidden 64 --heads 4 --vocabulary 500 --seq 32")["parameters"]["total"]);
}

TEST_F(PlanOfARun, OverTheLimitPrintsThePlanAndFailsWithAdvice) {
  const auto whole = run_json(path_)["bytes"].get<std::size_t>();
  const std::string below = path_ + " memory.limit=" + std::to_string(whole - 1);
  EXPECT_EQ(run(below).exit_code, 2);
  EXPECT_THAT(run(below).text, HasSubstr("memory at its peak"));
  EXPECT_THAT(run(below, true).text, HasSubstr("over memory.limit"));
  EXPECT_THAT(run(below, true).text, HasSubstr("the nearest setting that fits is train.recompute"));
  const Outcome fits = run(path_ + " memory.limit=" + std::to_string(whole));
  EXPECT_EQ(fits.exit_code, 0);
  EXPECT_THAT(fits.text, HasSubstr("fits into memory.limit"));
}

TEST_F(PlanOfARun, ComparesStagesOfZeroForItsWorkers) {
  const auto plan = run_json(path_ + " parallel.zero=3 --ranks 4,8");
  EXPECT_EQ(plan["ranks"], 4);
  ASSERT_EQ(plan["alternatives"].size(), 2u * 4 * 3);
  const auto bytes_of = [&](int ranks, int zero) {
    for (const auto& one : plan["alternatives"]) {
      if (one["ranks"] == ranks && one["zero"] == zero && one["recompute"] == "selective") {
        return one["bytes"].get<std::size_t>();
      }
    }
    return std::size_t{0};
  };
  EXPECT_EQ(bytes_of(4, 3), plan["bytes"]);
  for (int zero = 1; zero <= 3; ++zero) EXPECT_LT(bytes_of(4, zero), bytes_of(4, zero - 1));
  EXPECT_LT(bytes_of(8, 3), bytes_of(4, 3));
  EXPECT_THAT(run(path_ + " --ranks 4 memory.limit=100GiB").text,
              HasSubstr("ZeRO stage and recomputation; * fits into 107 GB (107,374,182,400 "
                        "bytes)"));
  EXPECT_EQ(run(path_ + " --ranks 0", true).exit_code, 2);

  const auto squeezed = run_json(path_ + " parallel.compression=int8 --ranks 4");
  EXPECT_EQ(squeezed["alternatives"].size(), 3u) << "compression does not go with ZeRO";
  const auto served = run_json(
      path_ + " parallel.strategy=parameter_server parallel.server_placement=dedicated --ranks 4");
  EXPECT_EQ(served["ranks"], 4) << "workers, as with train --ranks";
  EXPECT_EQ(served["alternatives"][1]["bytes"], served["bytes"]) << "that of its own workers";
}

TEST_F(PlanOfARun, TellsPartsTrafficAndWhatFitsABudgetForEveryAlternative) {
  const auto budget = run_json(path_ + " --ranks 4 parallel.zero=1")["bytes"].get<std::size_t>();
  const auto plan = run_json(path_ + " --ranks 2,4 --budget " + std::to_string(budget));
  ASSERT_EQ(plan["alternatives"].size(), 2u * 4 * 4) << "with auto";
  for (const auto& one : plan["alternatives"]) {
    std::size_t parts = 0;
    for (const char* part : {"parameters", "gradients", "optimizer", "activations", "buffers"}) {
      parts += one[part].get<std::size_t>();
    }
    EXPECT_EQ(parts, one["bytes"]);
    EXPECT_EQ(one["fits"], one["bytes"] <= budget);
    EXPECT_GT(one["sent"]["total"], 0);
    if (one["zero"] == 3 && one["ranks"] == 4 && one["recompute"] != "none") {
      EXPECT_EQ(one["fits"], true);
    }
    if (one["recompute"] == "none") {
      EXPECT_EQ(one["recomputed"], 0);
    }
  }
  EXPECT_EQ(plan["sent"]["total"], plan["alternatives"][1]["sent"]["total"]);
  EXPECT_EQ(plan["fits"], false);
  EXPECT_EQ(run(path_ + " --ranks 2 --budget 1MB").exit_code, 0) << "a question, no limit";
}

TEST_F(PlanOfARun, TellsWhatCrossesBetweenMachinesWithZeroPlusPlus) {
  const std::string plain = path_ + " train.precision=bf16 comm.emulated_nodes=2 parallel.zero=3 ";
  const std::string plus_plus = plain +
                                "parallel.quantized_weights=int8 parallel.secondary_partition=true "
                                "parallel.quantized_gradients=int4 ";
  const auto all = run_json(plain + "--ranks 1,4")["alternatives"];
  EXPECT_EQ(all[0]["sent"]["across"]["total"], 0) << "one worker";
  // An all-reduce: between two nodes of two ranks, each half of the gradients each way at least.
  EXPECT_GE(all[12]["sent"]["across"]["gradients"].get<double>(),
            4.0 / 3 * all[12]["sent"]["gradients"].get<double>());
  EXPECT_EQ(all.back()["ranks"], 4);
  const auto plan = run_json(plus_plus + "--ranks 4");
  ASSERT_EQ(plan["alternatives"].size(), 4u * 3) << "what is not of a stage is left out there";
  EXPECT_EQ(plan["sent"]["across"], plan["alternatives"].back()["sent"]["across"]);
  const auto across = [](const nlohmann::json& one) {
    return one["sent"]["across"]["total"].get<double>();
  };
  EXPECT_GT(across(plan), 0);
  EXPECT_LE(across(plan), 0.3 * across(all.back())) << "blocks of 128 do not fill small parts";
  EXPECT_THAT(run(plus_plus + "--ranks 4").text,
              AllOf(HasSubstr("workers on 2 nodes send in a step"),
                    HasSubstr("all of them inside nodes  between nodes"), HasSubstr("  across  ")));
}

TEST_F(PlanOfARun, ChoosesWhatFitsAndTellsIt) {
  // A workspace for every thread: what fits must not depend on the number of cores.
  const std::string four = path_ + " --ranks 4 train.threads=2";
  const auto whole = run_json(four + " train.recompute=none")["bytes"];
  const std::string limit = " memory.limit=" + std::to_string(whole.get<std::size_t>() * 3 / 4);
  const auto again = run_json(four + " train.recompute=auto" + limit);
  EXPECT_EQ(again["recompute"], "auto");
  EXPECT_EQ(again["zero"], 0);
  EXPECT_EQ(again["fits"], true);
  EXPECT_EQ(again["recompute_blocks"].size(), 5u);
  const auto chosen = run_json(four + " memory.auto=true" + limit);
  EXPECT_EQ(chosen["zero"], 1);
  EXPECT_EQ(chosen["fits"], true);
  EXPECT_THAT(run(four + " memory.auto=true" + limit).text,
              HasSubstr("memory.auto: parallel.zero = 1"));
  const Outcome nothing = run(path_ + " --ranks 2 memory.auto=true memory.limit=64KiB", true);
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.text, HasSubstr("the least is"));
}

TEST_F(PlanOfARun, NeedsNoStepsWhereTheyFollowFromTheData) {
  EXPECT_EQ(run(path_ + " train.epochs=2 schedule.decay=cosine").exit_code, 0);
}

TEST_F(PlanOfARun, RefusesWithASentence) {
  const struct {
    std::string arguments;
    const char* said;
  } cases[] = {
      {"none.toml", "the configuration cannot be read: cannot open none.toml: No such file"},
      {path_ + " train.macro_batch=2", "did you mean train.micro_batch_size?"},
      {path_ + " more", "'more' is not of the form key=value"},
      {path_ + " --seq 8", "--seq applies to a model that is described by flags"},
      {path_ + " model.positions=16", "longer than the 16 positions"},
      {path_ + " schedule.decay=cosine schedule.warmup_steps=20 schedule.decay_steps=9",
       "schedule.decay_steps"},
      {"train.micro_batch_size=2", "no model is given"},
  };
  for (const auto& one : cases) {
    const Outcome outcome = run(one.arguments, true);
    EXPECT_EQ(outcome.exit_code, 2) << one.arguments;
    EXPECT_THAT(outcome.text, HasSubstr(one.said)) << one.arguments;
  }
}

TEST(Plan, HelpShowsFlagsExamplesAndModels) {
  const Outcome outcome = run("--help");
  EXPECT_EQ(outcome.exit_code, 0);
  for (const char* said : {"--gpu-flops", "lockstep plan --model gpt3-175b", "llama2-70b"}) {
    EXPECT_THAT(outcome.text, HasSubstr(said));
  }
}

// In the docs a command stands behind a $, in front of what it prints; "..." stands for lines left
// out.
TEST(Plan, PrintsWhatTheDocsSay) {
  std::ifstream docs(in_sources("docs/plan.md"));
  const std::string prompt = "    $ lockstep plan ";
  int commands = 0;
  std::string printed;
  std::string quoted;
  const auto check = [&] {
    while (quoted.ends_with("\n\n")) quoted.pop_back();
    EXPECT_THAT(printed, HasSubstr(quoted));
    quoted.clear();
  };
  bool inside = false;
  for (std::string line; std::getline(docs, line);) {
    if (line.starts_with(prompt)) {
      if (inside) check();
      inside = true;
      ++commands;
      printed = run(line.substr(prompt.size())).text;
    } else if (inside && line == "    ...") {
      check();
    } else if (inside && (line.empty() || line.starts_with("    "))) {
      quoted += (line.empty() ? line : line.substr(4)) + "\n";
    } else if (inside) {
      check();
      inside = false;
    }
  }
  if (inside) check();
  EXPECT_GE(commands, 5);
}

}  // namespace
}  // namespace lockstep
