// The fingerprints of a rank's last operations on one communicator, by number. Used to report which
// operation differs from another rank's.
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

  // The last operation; its number is 0 if there was none.
  const Fingerprint& last() const { return operations_[last_ % kKept]; }

  // Null if the operation has not started or is no longer kept.
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
