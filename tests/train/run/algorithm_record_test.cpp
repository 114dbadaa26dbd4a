#include "lockstep/train/run/algorithm_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;

constexpr auto kChosen =
    "bf16 m8 n8: algo 66 tile 23 (timed, 5.1 us)\nbf16 m8 n16: algo 7 (first)\n";

TEST(AlgorithmRecord, CountsOtherAlgorithmsAndNotOtherTimes) {
  EXPECT_EQ(count_changed_algorithms(kChosen, kChosen), 0);
  EXPECT_EQ(count_changed_algorithms("", kChosen), 0);
  EXPECT_EQ(count_changed_algorithms(kChosen, "bf16 m8 n8: algo 66 tile 23 (timed, 9.9 us)\n"), 0);
  EXPECT_EQ(count_changed_algorithms(kChosen, "bf16 m8 n8: algo 66 tile 24 (timed, 5.1 us)\n"), 1);
  EXPECT_EQ(count_changed_algorithms(kChosen, "bf16 m9 n8: algo 1 (first)\n"), 0);
}

TEST(AlgorithmRecord, StoresWhatIsNewAndNothingWhereNothingWasChosen) {
  const ScratchFolder folder;
  const auto file = AlgorithmRecord::file_of(folder.path());
  AlgorithmRecord record(folder.path());
  EXPECT_EQ(record.store(""), "");
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_EQ(record.store(kChosen), "");
  EXPECT_EQ(read_file(file), kChosen);
  const std::string more = std::string(kChosen) + "bf16 m1 n1: algo 3 (first)\n";
  EXPECT_EQ(record.store(more), "");
  EXPECT_EQ(read_file(file), more);
}

TEST(AlgorithmRecord, SaysOnceThatAResumedRunChoseDifferently) {
  const ScratchFolder folder;
  EXPECT_EQ(AlgorithmRecord(folder.path()).store(kChosen), "");
  AlgorithmRecord resumed(folder.path());
  EXPECT_THAT(resumed.store("bf16 m8 n8: algo 1 (timed, 4 us)\n"),
              HasSubstr("1 matrix product runs here by another algorithm"));
  EXPECT_EQ(resumed.store("bf16 m8 n8: algo 1 (timed, 4 us)\nbf16 m8 n16: algo 2 (first)\n"), "");
}

TEST(AlgorithmRecord, SaysWhyItCouldNotStore) {
  const ScratchFolder folder;
  EXPECT_THAT(AlgorithmRecord(folder.path() / "gone").store(kChosen),
              HasSubstr("could not be stored"));
}

}  // namespace
}  // namespace lockstep::train
