// Indices outside their tables, which only the GPU sees: kernels write them down (context.h), and
// whoever synchronizes is told.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda {

class FaultWords {
 public:
  explicit FaultWords(cudaStream_t stream);
  ~FaultWords();
  FaultWords(const FaultWords&) = delete;
  FaultWords& operator=(const FaultWords&) = delete;

  Faults* on_device() const { return on_device_; }

  // Such an operation is queued, and may write.
  void expect(const ops::Embedding& call);
  void expect(const ops::EmbeddingBackward& call);
  void expect(const ops::CrossEntropy& call);
  void expect(const ops::DecodeAttention& call);
  // What was expected was captured, and may be launched at any time.
  void keep_expectations() { keeps_ = true; }
  // What was captured may write again.
  void expect_again() { may_be_written_ = true; }

  // Queues a copy of the words where they may have been written.
  void fetch();
  // After the stream has been waited for: throws Error(kInvalidArgument) for the first fault that
  // the copy shows, in the words of ops::check_indices, and forgets it.
  void check();

 private:
  // What an index had to be. The words do not say of which call it was; where calls differ, it was
  // one that the index was wrong for.
  struct Expectation {
    std::string_view what;  // "embedding: tokens"
    std::int64_t limit;
    friend bool operator==(const Expectation&, const Expectation&) = default;
  };
  using Expectations = std::vector<Expectation>;

  void add(Expectations& to, std::string_view what, const Tensor& table);
  static void check(unsigned long long word, const Expectations& expected, bool allow_no_target);

  cudaStream_t stream_;
  Faults* on_device_ = nullptr;
  Faults* fetched_ = nullptr;  // pinned
  bool may_be_written_ = false;
  bool is_fetched_ = false;
  bool keeps_ = false;
  Expectations tokens_, types_, targets_;
};

}  // namespace lockstep::cuda
