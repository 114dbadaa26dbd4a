// Meetings of blocks of threads of several ranks; see comm/cuda/control.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/comm/cuda/control.h"

namespace lockstep::cuda {

inline __device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

inline __device__ void send_signal(std::uint64_t* slot, std::uint64_t signal) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(slot), "l"(signal) : "memory");
}

inline __device__ std::uint64_t read_signal(const std::uint64_t* slot) {
  std::uint64_t signal;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(signal) : "l"(slot) : "memory");
  return signal;
}

inline __device__ bool has_come(std::uint64_t signal, std::uint32_t meeting) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(signal >> 32) - meeting) >= 0;
}

inline __device__ void end_all(const Peers& peers) {
  for (int r = 0; r < peers.size; ++r) {
    *reinterpret_cast<volatile std::uint32_t*>(&peers.controls[r]->aborted) = 1;
  }
  __threadfence_system();
}

inline __device__ void report(const Peers& peers, const Header& header, Outcome outcome, int other,
                              std::uint32_t meeting) {
  Control& mine = *peers.controls[peers.rank];
  if (atomicExch(&mine.claimed, 1u) == 0) {
    Report& report = *peers.report;
    std::uint32_t missing = 0;
    for (int r = 0; r < peers.size; ++r) {
      if (r != peers.rank && !has_come(read_signal(&mine.signals[blockIdx.x][r]), meeting)) {
        missing |= 1u << r;
      }
    }
    report.missing = missing;
    report.other = static_cast<std::uint32_t>(other);
    report.mine = header.operation;
    report.theirs = peers.controls[other]->operations[meeting & 1];
    __threadfence_system();
    report.outcome = static_cast<std::uint32_t>(outcome);
    __threadfence_system();
  }
  end_all(peers);
}

// Waits for rank `other` to come to a meeting; false where the call ends instead.
inline __device__ bool await(const Peers& peers, const Header& header, int other,
                             std::uint32_t meeting) {
  constexpr int kSpins = 128;  // between looks at the host's memory and the clock
  Control& mine = *peers.controls[peers.rank];
  const std::uint64_t* const slot = &mine.signals[blockIdx.x][other];
  const std::uint64_t begin = nanoseconds();
  for (int spins = 0;; ++spins) {
    const std::uint64_t signal = read_signal(slot);
    if (has_come(signal, meeting)) {
      // One that is ahead has compared already.
      if (static_cast<std::uint32_t>(signal >> 32) != meeting) return true;
      if (static_cast<std::uint32_t>(signal) == header.tag) return true;
      report(peers, header, Outcome::kMismatch, other, meeting);
      return false;
    }
    if (*reinterpret_cast<volatile std::uint32_t*>(&mine.aborted) != 0) {
      report(peers, header, Outcome::kStopped, other, meeting);
      return false;
    }
    if (spins < kSpins) continue;
    spins = 0;
    if (peers.report->abort != 0) {
      report(peers, header, Outcome::kStopped, other, meeting);
      return false;
    }
    // Clocks of multiprocessors may differ a little.
    if (static_cast<std::int64_t>(nanoseconds() - begin) >
        static_cast<std::int64_t>(peers.timeout)) {
      report(peers, header, Outcome::kOverdue, other, meeting);
      return false;
    }
  }
}

// The meetings of one block of threads. Every thread calls all functions.
class Meetings {
 public:
  __device__ Meetings(const Peers& peers, const Header& header) : peers_(peers), header_(header) {
    number_ = mine().meetings[blockIdx.x];
    __syncthreads();  // all have read it
  }

  // Makes this block's writes visible to the same blocks of other ranks, and theirs to it. False
  // where the call has ended.
  __device__ bool meet() {
    ++number_;
    if (blockIdx.x == 0 && threadIdx.x == 0) mine().operations[number_ & 1] = header_.operation;
    __syncthreads();
    const auto other = static_cast<int>(threadIdx.x);
    bool fine = true;
    if (other < peers_.size && other != peers_.rank) {
      send_signal(&peers_.controls[other]->signals[blockIdx.x][peers_.rank],
                  std::uint64_t{number_} << 32 | header_.tag);
      fine = await(peers_, header_, other, number_);
    }
    return __syncthreads_and(fine) != 0;
  }

  __device__ bool meet(const Card& card) {
    if (threadIdx.x == 0) mine().cards[blockIdx.x] = card;
    return meet();
  }

  __device__ void end() {
    if (threadIdx.x == 0) mine().meetings[blockIdx.x] = number_;
  }

  __device__ std::uint32_t number() const { return number_; }

 private:
  __device__ Control& mine() const { return *peers_.controls[peers_.rank]; }

  const Peers& peers_;
  const Header& header_;
  std::uint32_t number_;
};

inline __device__ const Card& card_of(const Peers& peers, int rank) {
  return peers.controls[rank]->cards[blockIdx.x];
}

inline __device__ std::byte* address(const Peers& peers, int rank, const Place& place) {
  return peers.bases[place.allocation * kMostRanks + rank] + place.offset;
}

}  // namespace lockstep::cuda
