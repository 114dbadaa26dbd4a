// The fingerprints of a rank's last operations on one communicator, by number: what it can still
// say when another rank turns out to have called something else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lockstep/comm/fingerprint.h"

namespace lockstep {

class History {
 public:
  static constexpr std::size_t kKept = 64;

  // Numbers count up from 1.
  void add(const Fingerprint& operation) {
    last_ = operation.sequence;
    operations_[last_ % kKept] = operation;
  }

  // Its number is 0 where there was none yet.
  const Fingerprint& last() const { return operations_[last_ % kKept]; }

  // Null where it is not yet called, or forgotten.
  const Fingerprint* find(std::uint64_t sequence) const {
    const Fingerprint& kept = operations_[sequence % kKept];
    return sequence != 0 && kept.sequence == sequence ? &kept : nullptr;
  }

  // Throws disagreement() when this rank's operation of the same number is known and differs.
  void compare(int rank, int other, const Fingerprint& theirs) const {
    const Fingerprint* mine = find(theirs.sequence);
    if (mine != nullptr && *mine != theirs) throw disagreement(rank, *mine, other, theirs);
  }

 private:
  std::array<Fingerprint, kKept> operations_{};
  std::uint64_t last_ = 0;
};

}  // namespace lockstep
