// Checks after the fact what a collective in shared memory has delivered (comm.verify).
//
// Every rank makes a *note* of an operation: before it, the CRC-32C of what it gives to each rank,
// and of a reduction some sampled elements of its input; after it, the CRC-32C of an all_reduce's
// result. The notes of all ranks are gathered, and every rank compares them with what it got:
//
//   broadcast, scatter, gather, all_gather, all_to_all   every block has the sum its giver took
//   all_reduce                                           all ranks have the same result
//   reduce, all_reduce, reduce_scatter                   the sampled elements, combined again in
//                                                        rank order, are the result's
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/comm/call.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/options.h"

namespace lockstep {

// Whether this operation is checked; the same on all ranks.
bool is_verified(VerifyChoice choice, const Call& call, std::uint64_t sequence);

// Of one operation of one rank. The memory of the call must stay valid.
class Verification {
 public:
  // Called before the operation. `in_rank_order`: the operation combines contributions in rank
  // order, so that sampled elements can be compared bit by bit.
  Verification(const Call& call, const Fingerprint& fingerprint, int rank, int ranks,
               bool in_rank_order);

  // Called after the operation: what all ranks must know. Notes of all ranks are equally long.
  const std::vector<std::uint64_t>& note();

  // Throws Error(kCorrupted) with the ranks and the operation unless what this rank got agrees with
  // all notes, one after another by rank.
  void compare(std::span<const std::uint64_t> notes) const;

 private:
  std::span<const std::byte> given_to(int other) const;
  std::span<const std::byte> got_from(int other) const;
  std::size_t words() const { return static_cast<std::size_t>(ranks_) + 1 + samples_.size(); }
  const std::byte* result_at(std::size_t element) const;  // null: another rank has it
  void compare_sample(std::size_t index, std::span<const std::uint64_t> notes) const;
  [[noreturn]] void fail(int other, std::string_view what) const;

  const Call& call_;
  Fingerprint fingerprint_;
  int rank_;
  int ranks_;
  std::size_t element_;               // bytes
  std::vector<std::size_t> samples_;  // elements of the input
  std::vector<std::uint64_t> note_;   // sums by rank, sum of the result, samples
};

}  // namespace lockstep
