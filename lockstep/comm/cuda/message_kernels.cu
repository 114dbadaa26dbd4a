// The signals of messages between two ranks; see comm/cuda/mailbox.h.
#include "lockstep/comm/cuda/meetings.cuh"
#include "lockstep/comm/cuda/message_kernels.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

__device__ void report_message(const Peers& peers, const Await& call, Outcome outcome) {
  Control& mine = *peers.controls[peers.rank];
  if (atomicExch(&mine.claimed, 1u) == 0) {
    Report& report = *peers.report;
    report.missing = 1u << call.other;
    report.other = static_cast<std::uint32_t>(call.other);
    report.mine = call.mine;
    if (call.theirs != nullptr) report.theirs = *call.theirs;
    __threadfence_system();
    report.outcome = static_cast<std::uint32_t>(outcome);
    __threadfence_system();
  }
  end_all(peers);
}

__global__ void await_kernel(const __grid_constant__ Peers peers,
                             const __grid_constant__ Await call) {
  if (threadIdx.x != 0) return;
  constexpr int kSpins = 128;  // between looks at the host's memory and the clock
  Control& mine = *peers.controls[peers.rank];
  const std::uint64_t begin = nanoseconds();
  for (int spins = 0;; ++spins) {
    const std::uint64_t signal = read_signal(call.signal);
    if (has_come(signal, call.number)) {
      const bool fits = call.theirs == nullptr || static_cast<std::uint32_t>(signal) == call.tag;
      if (!fits) report_message(peers, call, Outcome::kMismatch);
      return;
    }
    if (*reinterpret_cast<volatile std::uint32_t*>(&mine.aborted) != 0) {
      return report_message(peers, call, Outcome::kStopped);
    }
    if (spins < kSpins) continue;
    spins = 0;
    if (peers.report->abort != 0) return report_message(peers, call, Outcome::kStopped);
    if (static_cast<std::int64_t>(nanoseconds() - begin) >
        static_cast<std::int64_t>(peers.timeout)) {
      return report_message(peers, call, Outcome::kOverdue);
    }
  }
}

__global__ void announce_kernel(const __grid_constant__ Announce call) {
  if (threadIdx.x != 0) return;
  if (call.operation != nullptr) *call.operation = call.mine;
  __threadfence_system();  // what earlier kernels have copied, too
  send_signal(call.signal, call.value);
}

}  // namespace

void launch_await(const Peers& peers, const Await& await, cudaStream_t stream) {
  await_kernel<<<1, 32, 0, stream>>>(peers, await);
  check_launch("a wait for a message");
}

void launch_announce(const Announce& announce, cudaStream_t stream) {
  announce_kernel<<<1, 32, 0, stream>>>(announce);
  check_launch("a message");
}

void load_message_kernels() {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, &await_kernel), "loading a message");
  check(cudaFuncGetAttributes(&attributes, &announce_kernel), "loading a message");
}

}  // namespace lockstep::cuda
