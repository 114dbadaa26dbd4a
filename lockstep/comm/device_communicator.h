// Communicators over the memory of GPUs.
//
//   auto group = make_device_communicator(world.split(0, world.rank()), {.device = device});
//   SymmetricBuffer gradients = group->allocate(bytes);        // on the GPU
//   group->all_reduce(Data(gradients.data(), n, DType::kF32));  // done when it returns
//   stream.run([&] { group->run(call); });                      // in the order of a stream
//
// A call outside of a stream's task begins after all operations that are queued on the GPU, and
// returns when it is done. In a task of a Stream of this GPU, or of an Ops (in_order(), a capture),
// a call is queued, and what the stream queues later begins after it. Errors of queued calls are
// thrown by later calls; failure() returns them too.
//
// The host's communicator starts and ends both backends: it knows when a rank is lost, which ends
// what waits for it on the GPU, and carries signals, and messages (send and receive) outside of
// streams. User reductions are not supported.
//
// Native (comm/cuda): kernels of all ranks work together on mapped memory. The ranks are on one
// node, and their GPUs can read each other's memory, or are the same. Queued calls need their data
// in symmetric memory (an all-reduce of up to 256 KiB may have it anywhere), unless the
// communicator is `staged`: then they go through staging memory, in the order of the stream. Blocks
// that differ from rank to rank do not. Calls can be captured. All sums have the order of a
// balanced tree over ranks, so 2 ranks and 4 give the same bits as parallel.reduction = "tree"
// promises.
//
// NCCL (comm/nccl): ranks on any nodes. Their hosts compare every call before NCCL sees it, so a
// queued call waits until all ranks have made it. Data may lie anywhere on the GPU. Calls cannot be
// captured. Sums have NCCL's order, or that of the tree with `tree_order`; elements of 16 bits and
// minima and maxima of floating-point numbers, which NCCL rounds or treats otherwise, always have
// the tree's.
//
// Hierarchical (comm/hierarchical): native inside each node and NCCL across, where the ranks are a
// grid of several nodes and places (comm/node_grid.h). Symmetric memory is that of the node. Data
// may lie anywhere, but what is not symmetric is copied through staging memory. Calls cannot be
// captured. Calls that two levels do not serve go by NCCL among all ranks, and so do those for
// which the cost model expects that to be faster, unless the backend is kHierarchical. Sums have an
// order of their own in two levels, and that of the tree with `tree_order`.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/tensor/device.h"

namespace lockstep {

struct DeviceCommunicatorOptions {
  Device device;
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of every wait
  DeviceBackend backend = DeviceBackend::kAuto;
  bool tree_order = false;  // of NCCL's sums, too
  bool measure = true;      // hierarchical: the links, which the cost model else assumes
  // Takes staging memory at the start, so that queued calls may have their data anywhere.
  bool staged = false;
  // Native: takes a mailbox, so that messages can be queued, too (comm/cuda/mailbox.h). They go
  // from GPU to GPU. A send may wait until its receiver has come.
  bool messages = false;
  // Collectives that may wait for other ranks on this GPU at the same time, of all ranks that use
  // it; 0: those of this communicator.
  int at_once = 0;
};

// What `backend` is for ranks on these nodes: native, NCCL or hierarchical. `nodes` has the node of
// each rank.
//   auto, hierarchical   native on one node, hierarchical on a grid of several nodes and places,
//                        else NCCL
DeviceBackend device_backend_for(DeviceBackend backend, std::span<const int> nodes);

// Of the same ranks as `host`. Called by all of them. Throws Error(kUnsupported) where the backend
// does not serve: native on several nodes or between GPUs that cannot reach each other, NCCL where
// it is not installed. Where kAuto finds a node whose GPUs cannot reach each other, NCCL connects
// all ranks.
std::unique_ptr<Communicator> make_device_communicator(std::unique_ptr<Communicator> host,
                                                       const DeviceCommunicatorOptions& options);

// The NCCL library that was found, or why there is none.
struct NcclInfo {
  std::string version;  // "2.28.9"
  std::string file;
  std::string problem;  // empty: it can be used
};
NcclInfo nccl_info();

// Symmetric device memory takes whole pages.
inline constexpr std::size_t kSymmetricPage = std::size_t{2} << 20;
constexpr std::size_t symmetric_device_bytes(std::size_t bytes) {
  return (bytes + kSymmetricPage - 1) / kSymmetricPage * kSymmetricPage;
}

// Bytes on the device that a communicator takes besides the symmetric memory that it is asked for.
// Unless it is `staged`, what calls on other memory need is taken when the first is made.
inline constexpr int kMostNativeRanks = 16;
inline constexpr std::size_t kSignalBytes = kSymmetricPage;
inline constexpr std::size_t kAddressBytes = std::size_t{32} << 10;
inline constexpr std::size_t kStagingBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMailboxBytes = std::size_t{8} << 20;
inline constexpr std::size_t kMailboxSignalBytes = std::size_t{4} << 10;  // of these
inline constexpr std::size_t kMailboxSlots = 2;                           // for each sender
// All-reduces of up to this size are not staged.
inline constexpr std::size_t kSmallAllReduceBytes = std::size_t{256} << 10;
// A message of at most this size, in a group of that many ranks, goes in one piece: its sender does
// not wait for the receiver unless two others are still under way.
constexpr std::size_t mailbox_piece_bytes(int ranks) {
  constexpr std::size_t kRounding = 256;
  const std::size_t slots = static_cast<std::size_t>(ranks) * kMailboxSlots;
  return (kMailboxBytes - kMailboxSignalBytes) / slots / kRounding * kRounding;
}
constexpr std::size_t device_communicator_bytes(bool is_staged, bool has_messages = false) {
  return kSignalBytes + kAddressBytes + (is_staged ? kStagingBytes : 0) +
         (has_messages ? kMailboxBytes : 0);
}
// The same of a hierarchical one, staged or not: that of its node, staging memory for two levels
// and for NCCL, and what barriers of both NCCL's communicators reduce.
inline constexpr std::size_t kNcclBarrierBytes = 64;
constexpr std::size_t hierarchical_communicator_bytes() {
  return device_communicator_bytes(false) + 2 * kStagingBytes + 2 * kNcclBarrierBytes;
}
// The same of ranks on these nodes.
std::size_t device_communicator_bytes(DeviceBackend backend, std::span<const int> nodes,
                                      bool is_staged, bool has_messages = false);

}  // namespace lockstep
