// comm.verify: what collectives delivered is compared with what was given.
#include "lockstep/comm/native/verification.h"

#include <gtest/gtest.h>

#include <atomic>

#include "lockstep/base/error.h"
#include "lockstep/comm/native/threads.h"

namespace lockstep::verification_test {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kCount = 40;

// The buffers of one operation on all ranks, which the test moves itself.
struct Operation {
  std::vector<std::vector<float>> in;
  std::vector<std::vector<float>> out;
  std::vector<Call> calls;
};

std::vector<std::vector<float>> numbers(std::size_t count) {
  std::vector<std::vector<float>> all(kRanks, std::vector<float>(count));
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    for (std::size_t i = 0; i < count; ++i) {
      all[rank][i] = static_cast<float>(rank * 1000 + i) * 0.37f;
    }
  }
  return all;
}

// The error of the first rank that finds one, after `spoil` has changed what was delivered.
std::optional<Error> verified(Operation& operation, const std::function<void()>& deliver,
                              const std::function<void()>& spoil) {
  std::vector<std::unique_ptr<Verification>> checks;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Call& call = operation.calls[static_cast<std::size_t>(rank)];
    checks.push_back(
        std::make_unique<Verification>(call, fingerprint_of(call, 7), rank, kRanks, true));
  }
  deliver();
  spoil();
  std::vector<std::uint64_t> notes;
  for (const auto& check : checks) {
    const auto& note = check->note();
    notes.insert(notes.end(), note.begin(), note.end());
  }
  try {
    for (const auto& check : checks) check->compare(notes);
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

TEST(Verification, FindsAChangedByteOfEveryBlockOfAnAllToAll) {
  Operation operation{numbers(kRanks * kCount), numbers(kRanks * kCount), {}};
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    operation.calls.push_back(all_to_all(operation.in[rank], operation.out[rank]));
  }
  const auto deliver = [&] {
    for (std::size_t from = 0; from < kRanks; ++from) {
      for (std::size_t to = 0; to < kRanks; ++to) {
        std::copy_n(operation.in[from].begin() + static_cast<std::ptrdiff_t>(to * kCount), kCount,
                    operation.out[to].begin() + static_cast<std::ptrdiff_t>(from * kCount));
      }
    }
  };
  EXPECT_FALSE(verified(operation, deliver, [] {}));
  for (std::size_t to = 0; to < kRanks; ++to) {
    for (std::size_t from = 0; from < kRanks; ++from) {
      const auto error =
          verified(operation, deliver, [&] { operation.out[to][from * kCount + 5] += 1; });
      ASSERT_TRUE(error);
      EXPECT_EQ(error->code(), ErrorCode::kCorrupted);
      EXPECT_EQ(error->ranks(), (std::vector<int>{static_cast<int>(from), static_cast<int>(to)}));
    }
  }
}

TEST(Verification, FindsAResultThatIsWrongOnAllRanksAlike) {
  Operation operation{numbers(8), numbers(8), {}};
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    operation.calls.push_back(
        all_reduce(ConstData(operation.in[rank]), operation.out[rank], ReduceOp::kMean));
  }
  const auto deliver = [&] {
    for (std::size_t i = 0; i < 8; ++i) {
      const float mean = (operation.in[0][i] + operation.in[1][i] + operation.in[2][i]) / 3;
      for (auto& out : operation.out) out[i] = mean;
    }
  };
  EXPECT_FALSE(verified(operation, deliver, [] {}));
  // 16 samples of 8 elements: not every element, but a result that is wrong throughout is found.
  const auto error = verified(operation, deliver, [&] {
    for (auto& out : operation.out) {
      for (float& value : out) value += 0.5f;
    }
  });
  ASSERT_TRUE(error);
  EXPECT_NE(std::string(error->what()).find("is not the mean of all inputs"), std::string::npos);
  EXPECT_TRUE(verified(operation, deliver, [&] { operation.out[2][3] = 0; }));
}

CommOptions verifying(VerifyChoice choice) {
  CommOptions options;
  options.verify = choice;
  return options;
}

// On real ranks: a reduction that gives another result on one rank than on the others.
TEST(Verification, EndsACommunicatorWhoseRanksGotDifferentResults) {
  static thread_local bool lies = false;
  const UserReduction reduction{
      "sum that lies",
      [](void* sum, const void* operand, std::size_t count, DType, void*) {
        for (std::size_t i = 0; i < count; ++i) {
          static_cast<float*>(sum)[i] += static_cast<const float*>(operand)[i] + (lies ? 1 : 0);
        }
      },
      nullptr};
  for (const VerifyChoice choice : {VerifyChoice::kOff, VerifyChoice::kAll}) {
    std::atomic<int> errors = 0;
    const auto body = [&](Communicator& world) {
      lies = world.rank() == 1;
      std::vector<float> data(10, 1.0f);
      try {
        world.all_reduce(data, ReduceOp(reduction));
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupted) << error.what();
        ++errors;
      }
    };
    run_threads(kRanks, body, verifying(choice));
    EXPECT_EQ(errors, choice == VerifyChoice::kAll ? kRanks : 0);
  }
}

TEST(Verification, SamplesAboutOneOperationOfSixteen) {
  const Call call = all_reduce(Data());
  int checked = 0;
  for (std::uint64_t sequence = 1; sequence <= 16'000; ++sequence) {
    checked += is_verified(VerifyChoice::kSample, call, sequence) ? 1 : 0;
    EXPECT_TRUE(is_verified(VerifyChoice::kAll, call, sequence));
    EXPECT_FALSE(is_verified(VerifyChoice::kOff, call, sequence));
  }
  EXPECT_GT(checked, 800);
  EXPECT_LT(checked, 1200);
}

}  // namespace
}  // namespace lockstep::verification_test
