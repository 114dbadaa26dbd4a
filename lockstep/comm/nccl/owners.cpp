#include "lockstep/comm/nccl/owners.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda/device_call.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::nccl {
namespace {

constexpr char kHostVariable[] = "NCCL_HOSTID";

// Sent as bytes.
struct RankOwner {
  std::uint64_t node = 0;
  std::int64_t process = 0;
  std::int64_t version = 0;  // of NCCL; 0: it cannot be used
  std::array<char, 16> bus{};

  bool has_gpu_of(const RankOwner& other) const { return node == other.node && bus == other.bus; }
};

// Of the real node: comm.emulated_nodes does not count here.
std::uint64_t node_here() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  std::string text = name.data();
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  return std::hash<std::string>()(text + boot);
}

RankOwner owner_of_rank(int device, const std::optional<Error>& problem) {
  RankOwner mine;
  mine.node = node_here();
  mine.process = ::getpid();
  mine.version = problem ? 0 : library().version;
  cuda::check(cudaDeviceGetPCIBusId(mine.bus.data(), static_cast<int>(mine.bus.size()), device),
              "asking for a GPU's address");
  return mine;
}

std::vector<RankOwner> gathered_owners(Communicator& host, const RankOwner& mine) {
  std::vector<RankOwner> all(static_cast<std::size_t>(host.size()));
  host.all_gather(ConstData(&mine, sizeof(mine), DType::kU8),
                  Data(all.data(), all.size() * sizeof(mine), DType::kU8));
  return all;
}

void check_versions(const std::vector<RankOwner>& all) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r].version == 0) {
      fail(ErrorCode::kUnsupported,
           "rank {} has no NCCL that can be used, and says why; GPUs of several nodes need it", r);
    }
    if (all[r].version != all[0].version) {
      fail(ErrorCode::kUnsupported,
           "rank 0 has NCCL {}, but rank {} has {}; install the same version on all nodes",
           version_text(static_cast<int>(all[0].version)), r,
           version_text(static_cast<int>(all[r].version)));
    }
  }
}

void refuse_threads_that_share(const std::vector<RankOwner>& all) {
  for (std::size_t a = 0; a < all.size(); ++a) {
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (!all[a].has_gpu_of(all[b]) || all[a].process != all[b].process) continue;
      fail(ErrorCode::kUnsupported,
           "ranks {} and {} are threads of one process and use the same GPU, which NCCL does not "
           "support; start ranks as processes, or use comm.device_backend = \"native\"",
           a, b);
    }
  }
}

}  // namespace

const Library& agreed_library(Communicator& host, int device) {
  cuda::use_device(device);
  std::optional<Error> problem;
  try {
    library();
  } catch (const Error& error) {
    problem = error;
  }
  const RankOwner mine = owner_of_rank(device, problem);
  const std::vector<RankOwner> all = gathered_owners(host, mine);
  if (problem) throw Error(*problem);
  check_versions(all);
  refuse_threads_that_share(all);
  const auto has_my_gpu = [&](const RankOwner& other) { return other.has_gpu_of(mine); };
  if (const auto sharers = std::ranges::count_if(all, has_my_gpu); sharers > 1) {
    const auto first = std::ranges::find_if(all, has_my_gpu) - all.begin();
    if (host.rank() == first) cuda::warn_of_turns(static_cast<int>(sharers));
    ::setenv(kHostVariable, fmt::format("lockstep-{:x}-{}", mine.node, mine.process).c_str(), 0);
  }
  return library();
}

}  // namespace lockstep::nccl
