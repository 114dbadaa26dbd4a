// What the command says about settings: which there are, where values came from, what they mean.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/cli/train_command.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::Outcome;
using testing::run_lockstep;
using ::testing::StartsWith;

class SettingsCommand : public testing::TrainCommand {};

TEST_F(SettingsCommand, AreListedSortedByTheirBeginning) {
  const Outcome section = run_lockstep("train --help-config checkpoint");
  EXPECT_EQ(section.exit_code, 0);
  EXPECT_THAT(section.text,
              AllOf(StartsWith("[checkpoint]\ncheckpoint.async_save = true"),
                    HasSubstr("\ncheckpoint.keep_last = 2"), Not(HasSubstr("comm."))));
  EXPECT_LT(section.text.find("checkpoint.every"), section.text.find("checkpoint.keep_every"));
  EXPECT_THAT(run_lockstep("train --help-config batch_size").text,
              HasSubstr("train.global_batch_size = 0"));
  const Outcome all = run_lockstep("train --help-config");
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(all.text, AllOf(HasSubstr("\n[comm]\n"), HasSubstr("\n[train]\n")));
  const Outcome none = run_lockstep("train --help-config nothing.of.the.kind");
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.text, HasSubstr("no key begins with"));
}

TEST_F(SettingsCommand, OfARunSayWhereTheyCameFrom) {
  std::ofstream(folder / "job.toml") << "[schedule]\ndecay = \"cosine\"\n";
  const Outcome outcome = run_lockstep("train " + (folder / "job.toml").string() + " " +
                                       settings("run", "train.steps=3"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(
      text_of(folder / "run/config.toml"),
      AllOf(HasSubstr("train.steps = 3  # command line\n"),
            HasSubstr("schedule.decay = \"cosine\"  # " + (folder / "job.toml").string()),
            HasSubstr("schedule.decay_steps = 3  # derived\n"),
            HasSubstr("train.micro_batch_size = "), HasSubstr("train.seed = 1  # default\n"),
            HasSubstr("model.vocabulary = 256  # derived\n")));
  EXPECT_EQ(run_lockstep("train " + (folder / "run").string()).exit_code, 0) << "is read back";
}

TEST_F(SettingsCommand, TheBatchIsToldAndWhereItFollowsTheRanks) {
  const std::string line = "a step has 4 sequences in micro-batches of 4, 64 tokens\n";
  const Outcome one = run_lockstep("train " + settings("one", "train.steps=1"));
  EXPECT_THAT(one.text, AllOf(HasSubstr(line), Not(HasSubstr("follows the number"))));
  const Outcome fixed = run_lockstep("train " + settings("fixed", "train.steps=1") + " --ranks 2");
  EXPECT_THAT(fixed.text, AllOf(HasSubstr("a step has 4 sequences in micro-batches of 2"),
                                Not(HasSubstr("follows the number"))));
  const Outcome grows = run_lockstep(
      "train " +
      settings("grows", "train.steps=1 train.global_batch_size=0 train.micro_batch_size=4") +
      " --ranks 2");
  EXPECT_THAT(grows.text,
              AllOf(HasSubstr("a step has 8 sequences in micro-batches of 4, 128 tokens\n"),
                    HasSubstr("the batch follows the number of workers: 2 x 4 = 8 sequences"),
                    HasSubstr("train.global_batch_size = 8")));
}

TEST_F(SettingsCommand, WithoutEffectAreWarnedOfAndThoseOfOthersListed) {
  const Outcome outcome = run_lockstep(
      "train " + settings("run",
                          "train.steps=1 parallel.consistency=asp parallel.staleness=2 "
                          "parallel.compression_ratio=0.5 dataloader_num_workers=4"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text,
              AllOf(HasSubstr("warning: parallel.consistency = \"asp\" has no effect"),
                    HasSubstr("warning: parallel.staleness = 2 has no effect"),
                    HasSubstr("warning: parallel.compression_ratio = 0.5 has no effect"),
                    HasSubstr("dataloader_num_workers of other trainers has no effect here")));
  EXPECT_THAT(run_lockstep("train " + (folder / "run").string() + " train.steps=2").text,
              Not(HasSubstr("has no effect")));
}

TEST_F(SettingsCommand, AHintGoesByWhatAFlagMeans) {
  EXPECT_THAT(run_lockstep("generate run --prompt hello").text,
              HasSubstr("use --prompt-file FILE"));
  EXPECT_THAT(run_lockstep("generate run hello --max_new_tokens 5").text,
              HasSubstr("use --tokens"));
  EXPECT_THAT(run_lockstep("train job.toml --batch_size=12").text,
              HasSubstr("written without dashes: batch_size=..."));
  EXPECT_THAT(run_lockstep("train job.toml --learning-rate 1e-3").text,
              HasSubstr("written without dashes: learning_rate=..."));
  EXPECT_THAT(run_lockstep("train --config job.toml").text, HasSubstr("the file itself"));
  EXPECT_THAT(run_lockstep("train data.text=a.txt train.batch_size=12").text,
              HasSubstr("did you mean train.global_batch_size?"));
}

TEST_F(SettingsCommand, AlgorithmsMayBeAList) {
  const Outcome shown = run_lockstep("explain all_reduce --algorithm ring,tree --ranks 2");
  EXPECT_EQ(shown.exit_code, 0) << shown.text;
  EXPECT_THAT(shown.text, AllOf(HasSubstr("ring"), HasSubstr("tree")));
  EXPECT_THAT(run_lockstep("bench collectives --quick --sizes 8 --algorithm ring,trie").text,
              AllOf(HasSubstr("'trie'"), Not(HasSubstr("'ring,trie'"))));
}

}  // namespace
}  // namespace lockstep
