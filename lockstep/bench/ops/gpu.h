// `lockstep bench ops --device cuda`: the large cases of every operation on a GPU, beside what the
// same GPU copies and multiplies at best, and attention beside cuDNN's.
//
// The ceilings are measured first: bytes per second, read and written, of a copy of 2 GiB on the
// device, and FLOPs per second of a product of two matrices of 8192 x 8192 by the same library that
// multiplies for our layers. They stand where the CPU's floor has streaming and multiplying in
// registers.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/bench/ops/attention_peer.h"
#include "lockstep/bench/ops/bench_ops.h"

namespace lockstep::bench {

struct GpuOpsPlan {
  Device device{DeviceKind::kCuda, 0};
  std::vector<OpDescription> ops;
  std::vector<DType> dtypes{DType::kBF16};
  double seconds = 0.5;  // for each case
  bool peers = false;
  std::string python;
  std::filesystem::path json;          // empty: none
  std::filesystem::path command;       // the `lockstep` program
  std::filesystem::path peers_folder;  // of the peers' scripts
};

// Measures everything, printing each line as it comes; false where an operation failed. Bars that
// are missed are reported and fail nothing. Throws Error(kUnsupported) where the GPU cannot be
// used, and Error(kAborted) when interrupted.
bool run_ops_on_gpu(const GpuOpsPlan& plan);

// What the ceilings are measured with.
OpCase copy_case(std::size_t bytes);
OpCase product_case(DType dtype, std::int64_t size);

// One case in batches of about `batch_seconds`, by turns with the peer where there is one and the
// case is attention; an Error of it is its problem.
struct GpuTiming {
  double seconds = 0.5;
  double batch_seconds = 0.02;
  std::size_t more_than_caches = 0;
  AttentionPeer* peer = nullptr;
  const Interrupt* interrupt = nullptr;
};
OpTime time_large(Ops& ops, const OpDescription& description, const OpCase& one, DType dtype,
                  const GpuTiming& timing);

std::string gpu_heading(const std::string& implementation, const std::string& peer,
                        const Floor& ceiling);
std::string gpu_line(const OpTime& time, const Floor& ceiling);
// How many bars were met and which were not.
std::string gpu_bars(const std::vector<OpTime>& times, const Floor& ceiling);

}  // namespace lockstep::bench
