// What a run says where its data is not what it was.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/data/token_file/writer.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/dataset/fingerprint.h"
#include "tests/train/run/recorded_run.h"

namespace lockstep::train::run_data_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
namespace fs = std::filesystem;

class RunData : public RecordedRun {
 protected:
  // The warnings.
  std::vector<std::string> train(const char* dir, std::vector<std::string> more) {
    EXPECT_EQ(run(tiny(dir), std::move(more), &recorder), RunOutcome::kFinished);
    return recorder->warnings;
  }

  // One byte of the text, in its middle, as another that it has.
  void change_text() const {
    std::string text = bytes_of(folder / "text.txt");
    char& byte = text[text.size() / 2];
    byte = byte == 'q' ? 'x' : 'q';
    write_file(folder / "text.txt", text);
  }
};

TEST_F(RunData, ThatHasChangedSinceTheCheckpointIsWarnedOf) {
  EXPECT_THAT(train("a", {"train.steps=2"}), IsEmpty());
  EXPECT_THAT(train("a", {"train.steps=3", "train.micro_batch_size=1"}), IsEmpty());
  change_text();
  EXPECT_THAT(train("a", {"train.steps=4"}),
              ElementsAre(AllOf(HasSubstr("the data has changed"), HasSubstr("tokens with hash"),
                                HasSubstr("choose another run.dir"))));
  EXPECT_THAT(recorder->losses, ::testing::SizeIs(1)) << "it goes on all the same";
  EXPECT_THAT(train("a", {"train.steps=5"}), IsEmpty()) << "now it is this one's";
  // The same text somewhere else, and later.
  fs::copy(folder / "text.txt", folder / "copy.txt");
  EXPECT_THAT(train("a", {"train.steps=6", "data.text=" + (folder / "copy.txt").string()}),
              IsEmpty());
}

TEST_F(RunData, OfTokensThatHasChangedIsWarnedOf) {
  const auto write = [&](data::TokenId first) {
    data::TokenWriter writer(folder / "x.tokens", {.vocabulary = 50});
    std::vector<data::TokenId> ids(1001);
    for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<data::TokenId>(i * i % 47);
    ids.front() = first;
    writer.append(ids);
    writer.finish();
  };
  const std::vector<std::string> tokens = {
      "data.text=", "data.tokenizer=", "data.tokens=" + (folder / "x.tokens").string()};
  const auto train_to = [&](const char* steps) {
    std::vector<std::string> settings = tokens;
    settings.emplace_back(steps);
    return train("a", settings);
  };
  write(1);
  EXPECT_THAT(train_to("train.steps=2"), IsEmpty());
  write(2);
  EXPECT_THAT(train_to("train.steps=3"), ElementsAre(HasSubstr("1,001 tokens with hash")));
}

TEST_F(RunData, OfACheckpointThatDoesNotNameItIsTakenAsItIs) {
  train("a", {"train.steps=2"});
  const fs::path file = folder / "a/checkpoints/step-00000002/manifest.json";
  Manifest manifest = parse_manifest(bytes_of(file), file.string());
  EXPECT_THAT(manifest.data, HasSubstr("tokens with hash"));
  manifest.data.clear();
  write_file(file, format_manifest(manifest));
  EXPECT_THAT(bytes_of(file), ::testing::Not(HasSubstr("\"data\"")));
  change_text();
  EXPECT_THAT(train("a", {"train.steps=3"}), IsEmpty());
}

TEST(DataFingerprint, IsOfTheEndsAndOfPlacesBetween) {
  const ScratchFolder scratch;
  // More than all pages that are looked at.
  std::vector<data::TokenId> ids(2'000'003);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<data::TokenId>(i * i % 997);
  const auto fingerprint = [&](const std::vector<data::TokenId>& all, std::int64_t vocabulary) {
    const fs::path path = scratch.path() / "x.tokens";
    data::TokenWriter writer(path, {.vocabulary = vocabulary});
    writer.append(all);
    writer.finish();
    Dataset dataset;
    dataset.training.emplace(path);
    return data_fingerprint(dataset);
  };
  const std::string before = fingerprint(ids, 1000);
  EXPECT_THAT(before, HasSubstr("2,000,003 tokens"));
  EXPECT_EQ(fingerprint(ids, 100'000), before) << "ids of four bytes";
  for (const std::size_t at : {std::size_t{0}, ids.size() - 1}) {
    std::vector<data::TokenId> other = ids;
    other[at] += 1;
    EXPECT_NE(fingerprint(other, 1000), before) << at;
  }
  std::vector<data::TokenId> other = ids;
  for (std::size_t i = ids.size() / 4; i < ids.size() / 2; ++i) other[i] = 7;
  EXPECT_NE(fingerprint(other, 1000), before);
  other = ids;
  other.pop_back();
  EXPECT_NE(fingerprint(other, 1000), before);
}

TEST(DataFingerprint, IsOfBothSidesOfPairsAndOfTables) {
  Dataset one;
  one.pairs = {{.source = {1, 2}, .target = {3}}, {.source = {4}, .target = {5}}};
  Dataset other;
  other.pairs = {{.source = {1}, .target = {2, 3}}, {.source = {4}, .target = {5}}};
  EXPECT_NE(data_fingerprint(one), data_fingerprint(other)) << "where a side ends";
  other.pairs = one.pairs;
  EXPECT_EQ(data_fingerprint(one), data_fingerprint(other));
  Dataset table;
  table.table = {1, 2, 3};
  Dataset changed;
  changed.table = {1, 2, 4};
  EXPECT_NE(data_fingerprint(table), data_fingerprint(changed));
}

}  // namespace
}  // namespace lockstep::train::run_data_test
