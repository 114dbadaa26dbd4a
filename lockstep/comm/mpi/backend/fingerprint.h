// The description of an operation, which ranks compare before they start it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/call.h"

namespace lockstep::mpi {

// Collective steps without a Call.
enum class Special : std::uint8_t { kNone, kSplit, kAllocate };

// Sent as bytes; equal on all ranks that agree.
struct Fingerprint {
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;        // elements; bytes of an allocation
  std::uint64_t counts_hash = 0;  // of the block sizes that all ranks share
  std::int32_t root = 0;
  Special special = Special::kNone;
  Collective kind = Collective::kBarrier;
  bool varying = false;
  DType dtype = DType::kF32;
  ReduceOp::Kind op = ReduceOp::kSum;
  char user_op[39] = {};  // its name, truncated
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

static_assert(sizeof(Fingerprint) == 72, "no padding: it travels as bytes");

Fingerprint fingerprint(const Call& call, std::uint64_t sequence);
Fingerprint fingerprint(Special special, std::size_t bytes, std::uint64_t sequence);

// "all_reduce of 1024 f32, sum"
std::string describe(const Fingerprint& fingerprint);

// Nothing if all agree; else Error(kMismatch) with the calls of the ranks, the same on all ranks.
// all[r] is the fingerprint of rank r.
std::optional<Error> compare(std::span<const Fingerprint> all);

// The same for the block sizes of all_to_all_v: ranks * 2 * ranks numbers, what each rank sends to
// each and then what it expects from each.
std::optional<Error> compare_block_sizes(std::span<const std::uint64_t> sizes, int ranks);

}  // namespace lockstep::mpi
