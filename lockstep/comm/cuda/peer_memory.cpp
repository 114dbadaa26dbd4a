#include "lockstep/comm/cuda/peer_memory.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

// What ranks tell each other, as bytes.
struct Owner {
  std::int64_t process = 0;
  std::int32_t device = 0;
  char bus[16] = {};  // of the GPU, the same for all processes
};

struct Offer {
  std::uint64_t bytes = 0;
  std::uint32_t index = 0;
  std::uint32_t padding = 0;
  std::byte* data = nullptr;
  cudaIpcMemHandle_t handle{};
};

template <class T>
std::vector<T> gathered(Communicator& host, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(host.size()));
  host.all_gather(ConstData(&mine, sizeof(T), DType::kU8),
                  Data(all.data(), all.size() * sizeof(T), DType::kU8));
  return all;
}

Owner owner_here(int device) {
  Owner mine;
  mine.process = getpid();
  mine.device = device;
  check(cudaDeviceGetPCIBusId(mine.bus, sizeof(mine.bus), device), "asking for a GPU's address");
  return mine;
}

void enable_access(int device, const Owner& other) {
  if (other.device == device) return;
  int can = 0;
  check(cudaDeviceCanAccessPeer(&can, device, other.device), "asking for access between GPUs");
  if (can == 0) {
    fail(ErrorCode::kUnsupported,
         "cuda:{} cannot read the memory of cuda:{}; use GPUs that are connected, or one rank",
         device, other.device);
  }
  const cudaError_t status = cudaDeviceEnablePeerAccess(other.device, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return;
  }
  check(status, "enabling access between GPUs");
}

}  // namespace

PeerMemory::PeerMemory(Communicator& host, int device) : host_(host), device_(device) {
  if (host.size() > kMostRanks) {
    fail(ErrorCode::kUnsupported, "{} ranks on GPUs of one node are more than the {} supported",
         host.size(), kMostRanks);
  }
  const std::vector<int> machines = host.machines();
  if (std::ranges::count(machines, machines.front()) != host.size()) {
    fail(ErrorCode::kUnsupported,
         "ranks on several nodes cannot map each other's GPU memory; set comm.device_backend to "
         "\"nccl\" or \"auto\"");
  }
  use_device(device);
  const Owner mine = owner_here(device);
  const std::vector<Owner> owners = gathered(host, mine);
  const auto is_same_gpu = [](const Owner& one, const Owner& other) {
    return std::strncmp(one.bus, other.bus, sizeof(one.bus)) == 0;
  };
  for (const Owner& owner : owners) {
    const auto sharers = std::ranges::count_if(
        owners, [&](const Owner& other) { return is_same_gpu(owner, other); });
    sharers_ = std::max(sharers_, static_cast<int>(sharers));
    if (owner.process != mine.process) {
      shares_with_processes_ = shares_with_processes_ || is_same_gpu(owner, mine);
    } else {
      ++ranks_here_;
      enable_access(device, owner);
    }
  }
}

PeerMemory::~PeerMemory() {
  // All ranks have come here, or one is lost: then nothing waits for it.
  try {
    host_.barrier();
  } catch (const Error&) {
  }
  use_device(device_);
  for (auto& [index, held] : held_) {
    for (void* const mapped : held.mapped) cudaIpcCloseMemHandle(mapped);
    held.mapped.clear();
  }
  try {
    host_.barrier();
  } catch (const Error&) {
  }
  cudaGetLastError();
}

void PeerMemory::release(std::uint32_t index) {
  const std::lock_guard lock(mutex_);
  held_.at(index).is_released = true;
}

// Called by all ranks: what they released they released before they came here.
void PeerMemory::sweep() {
  std::vector<std::uint32_t> released;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [index, held] : held_) {
      if (!held.is_released) continue;
      released.push_back(index);
      for (void* const mapped : held.mapped) {
        check(cudaIpcCloseMemHandle(mapped), "unmapping memory of another process");
      }
      held.mapped.clear();
    }
  }
  // Of all ranks: one may have released more than another that is still on its way.
  std::uint32_t most = 0;
  for (const std::uint32_t count : gathered(host_, static_cast<std::uint32_t>(released.size()))) {
    most = std::max(most, count);
  }
  if (most == 0) return;
  host_.barrier();
  const std::lock_guard lock(mutex_);
  for (const std::uint32_t index : released) held_.erase(index);
}

PeerMemory::Allocation PeerMemory::allocate(std::size_t bytes) {
  use_device(device_);
  sweep();
  // In whole pages: a handle names the page of a smaller allocation, not the allocation.
  const std::size_t pages = symmetric_device_bytes(std::max<std::size_t>(bytes, 1));
  Held held{.buffer = Buffer(pages, {DeviceKind::kCuda, device_})};
  Offer offer;
  offer.bytes = bytes;
  offer.data = held.buffer.data();
  {
    const std::lock_guard lock(mutex_);
    while (held_.contains(offer.index)) ++offer.index;
  }
  const Owner mine = owner_here(device_);
  const std::vector<Owner> owners = gathered(host_, mine);
  const bool exports = std::ranges::any_of(
      owners, [&](const Owner& owner) { return owner.process != mine.process; });
  if (exports) {
    check(cudaIpcGetMemHandle(&offer.handle, offer.data), "sharing memory of the GPU");
  }
  const std::vector<Offer> offers = gathered(host_, offer);
  Allocation made;
  for (std::size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].bytes != bytes || offers[rank].index != offer.index) {
      fail(ErrorCode::kMismatch,
           "ranks allocate different symmetric memory: rank {} {} bytes as number {}, rank {} {} "
           "bytes as number {}; all ranks allocate and free it together",
           host_.rank(), bytes, offer.index, rank, offers[rank].bytes, offers[rank].index);
    }
    if (owners[rank].process == mine.process) {
      made.bases[rank] = offers[rank].data;
      continue;
    }
    void* mapped = nullptr;
    check(cudaIpcOpenMemHandle(&mapped, offers[rank].handle, cudaIpcMemLazyEnablePeerAccess),
          "mapping memory of another process");
    held.mapped.push_back(mapped);
    made.bases[rank] = static_cast<std::byte*>(mapped);
  }
  if (offer.index >= kMostAllocations) {
    fail(ErrorCode::kUnsupported, "more than {} allocations of symmetric device memory",
         kMostAllocations);
  }
  made.index = offer.index;
  const std::lock_guard lock(mutex_);
  held_.emplace(offer.index, std::move(held));
  return made;
}

std::optional<Place> PeerMemory::find(const std::byte* data, std::size_t bytes) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [index, held] : held_) {
    if (held.is_released || held.buffer.data() == nullptr) continue;
    const std::byte* const begin = held.buffer.data();
    if (data < begin || data + bytes > begin + held.buffer.bytes()) continue;
    return Place{index, static_cast<std::uint64_t>(data - begin)};
  }
  return std::nullopt;
}

}  // namespace lockstep::cuda
