// Reports indices outside their tables. Only kernels can detect them; they record them (context.h),
// and synchronize() throws the error.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/routing.h"

namespace lockstep::cuda {

class FaultWords {
 public:
  explicit FaultWords(cudaStream_t stream);
  ~FaultWords();
  FaultWords(const FaultWords&) = delete;
  FaultWords& operator=(const FaultWords&) = delete;

  Faults* on_device() const { return on_device_; }

  // An operation that may record a fault is being queued.
  void expect(const ops::Embedding& call);
  void expect(const ops::EmbeddingBackward& call);
  void expect(const ops::LogitStatistics& call);
  void expect(const ops::CrossEntropy& call);
  void expect(const ops::DecodeAttention& call);
  void expect(const ops::RouteBackward& call);
  void expect(const ops::GatherTokens& call);
  void expect(const ops::CombineTokens& call);
  // The expected operations were captured and may be launched at any time.
  void keep_expectations() { keeps_ = true; }
  // A captured graph that may record a fault is being launched.
  void expect_again() { may_be_written_ = true; }

  // Queues a copy of the words if an operation may have written them.
  void fetch();
  // Call it after waiting for the stream. Throws Error(kInvalidArgument) for the first fault in the
  // copy, with the message of ops::check_indices, and clears it.
  void check();

 private:
  // The valid range of an index. The words do not record the call; where calls have different
  // ranges, the error names one that the index violates.
  struct Expectation {
    std::string_view what;  // "embedding: tokens"
    std::int64_t limit;
    friend bool operator==(const Expectation&, const Expectation&) = default;
  };
  using Expectations = std::vector<Expectation>;

  void add(Expectations& to, std::string_view what, std::int64_t limit);
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
