// A Fingerprint is what all ranks must agree on before an operation may move data. Ranks compare
// its hash; the fields are kept so that an error can say who called what.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/call.h"

namespace lockstep {

struct Fingerprint {
  std::uint64_t sequence = 0;  // the number of the operation
  std::uint64_t count = 0;     // elements, as the kind counts them (0 where blocks vary)
  std::uint64_t extra = 0;     // hash of block sizes, a forced algorithm, a user's reduction
  std::int32_t root = 0;
  Collective kind = Collective::kBarrier;
  DType dtype = DType::kF32;
  ReduceOp::Kind op = ReduceOp::kSum;
  bool varying = false;

  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

// The value of `extra` for the all_gather that begins a split.
inline constexpr std::uint64_t kSplitMark = 0x73706c6974;
// The same for the all_gather by which ranks verify the operation before it.
inline constexpr std::uint64_t kVerifyMark = 0x766572696679;

Fingerprint fingerprint_of(const Call& call, std::uint64_t sequence);

// Never 0.
std::uint64_t hash(const Fingerprint& fingerprint);

// "operation 17: all_reduce of 1024 f32, sum"
std::string describe(const Fingerprint& fingerprint);

// Error(kMismatch) about `other`: "ranks disagree: rank 1 called ..., but rank 0 called ..."
Error disagreement(int rank, const Fingerprint& mine, int other, const Fingerprint& theirs);

// Error(kTimeout): "barrier: waited 2 s for ranks 1 and 2; ...". `awaited` is in order.
Error overdue(std::string_view what, std::chrono::nanoseconds waited, std::vector<int> awaited);

}  // namespace lockstep
