// The operations of a GPU for tests, and failures of many cases in few lines.
#pragma once

#include <cstdlib>
#include <map>
#include <string>

#include "tests/ops/expectations.h"
#include "tests/tensor/cuda/gpu.h"

namespace lockstep::ops_test {

using lockstep::testing::kGpu;
using lockstep::testing::OnGpu;

// Made once, by the first test that is not skipped. Never destroyed: the driver may be gone when
// static objects are.
inline Ops& gpu_ops() {
  static Ops& made = [&]() -> Ops& {
    ::setenv("LOCKSTEP_TUNE", "0", 0);  // timing the products of all cases would take longer
    return *make_cuda_ops(kGpu.index).release();
  }();
  return made;
}

// Collects problems, one line for a case and a field, and reports them as one failure. After an
// invalid access by a kernel the GPU is lost for this process, and later cases are skipped.
class Problems {
 public:
  static constexpr std::size_t kMostLines = 8;  // of an operation and a type

  // `of` has operation and type, then the case in brackets.
  void add(const std::string& of, const std::string& problem) {
    ++count_;
    const std::size_t lines = ++lines_of_[of.substr(0, of.find('['))];
    if (lines <= kMostLines) text_ += of + ": " + problem + "\n";
    if (lines == kMostLines + 1) text_ += "...\n";
  }
  // Calls check(), which returns lines; false where the GPU is lost.
  template <class Check>
  bool collect(const std::string& of, Check&& check) {
    ++cases_;
    try {
      for (const std::string& line : check()) add(of, line);
    } catch (const Error& error) {
      add(of, error.what());
      is_lost() = error.code() == ErrorCode::kSystem;
    }
    return !is_lost();
  }
  ~Problems() {
    if (count_ == 0) return;
    ADD_FAILURE() << count_ << " problems in " << cases_ << " cases"
                  << (is_lost() ? "; the GPU is lost, nothing more is tried" : "") << "\n"
                  << text_;
  }

  static bool& is_lost() {
    static bool lost = false;
    return lost;
  }

 private:
  std::string text_;
  std::map<std::string, std::size_t> lines_of_;
  std::size_t count_ = 0;
  std::size_t cases_ = 0;
};

template <class Fixture>
class OnLiveGpu : public OnGpu<Fixture> {
 protected:
  void SetUp() override {
    OnGpu<Fixture>::SetUp();
    if (this->IsSkipped() || this->HasFatalFailure()) return;
    if (Problems::is_lost()) FAIL() << "an earlier test lost the GPU; run this one by itself";
  }
};

inline std::string text(Places places) { return places == Places::kOdd ? "odd" : "even"; }

// That the GPU gives what `oracle`, of the CPU, gives, wherever tensors begin. Writes to
// `problems`; false where the GPU is lost.
inline bool check_case(Problems& problems, const std::string& operation, DType dtype,
                       const OpCase& one, Ops& oracle, std::initializer_list<Places> all_places,
                       double times_allowed = 1) {
  CaseMemory expected(one, 1, {}, &oracle);
  expected.run(oracle);
  for (const Places places : all_places) {
    const std::string of =
        fmt::format("{} {} [{}] {}", operation, name(dtype), one.name, text(places));
    const bool goes_on = problems.collect(of, [&] {
      CaseMemory memory(one, 1, {kGpu, places}, &oracle);
      return problems_of(gpu_ops(), one, memory, expected, times_allowed);
    });
    if (!goes_on) return false;
  }
  return true;
}

}  // namespace lockstep::ops_test
