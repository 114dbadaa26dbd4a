#include "lockstep/comm/nccl/levels.h"

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/hierarchical/communicator.h"
#include "lockstep/comm/nccl/communicator.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::nccl {
namespace {

// The level inside, with staging memory for two levels and, behind it, for NCCL; or why there is
// none.
struct Inside {
  hierarchical::Levels levels;
  std::optional<Error> problem;

  void close() {
    levels.staging = {};
    levels.inside.reset();
  }
};

Inside make_inside(std::unique_ptr<Communicator> node, const MakeCommunicator& make) {
  Inside made;
  try {
    made.levels.inside = make(std::move(node));
    made.levels.staging = made.levels.inside->allocate(2 * kStagingBytes);
  } catch (const Error& error) {
    made.problem = error;
    made.close();
  }
  return made;
}

// The first rank whose node has no level inside; nothing: all have one.
std::optional<int> first_without(Communicator& host, bool is_without) {
  const std::vector<std::uint8_t> mine{is_without ? std::uint8_t{1} : std::uint8_t{0}};
  std::vector<std::uint8_t> all(static_cast<std::size_t>(host.size()));
  host.all_gather(mine, all);
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] != 0) return static_cast<int>(r);
  }
  return std::nullopt;
}

// Lets calls in the order of different streams use the same memory one after the other.
class CallOrder {
 public:
  explicit CallOrder(int device) : device_(device) {
    cuda::use_device(device);
    cuda::check(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "making an event");
  }
  ~CallOrder() { cudaEventDestroy(ended_); }
  CallOrder(const CallOrder&) = delete;
  CallOrder& operator=(const CallOrder&) = delete;

  // An event that was never recorded is not waited for.
  void begin() const {
    cuda::use_device(device_);
    const cudaStream_t stream = cuda::CurrentStream::get();
    cuda::check(
        stream != nullptr ? cudaStreamWaitEvent(stream, ended_) : cudaEventSynchronize(ended_),
        "queueing a collective");
  }
  // Without a stream a call is done when it returns.
  void end() const {
    const cudaStream_t stream = cuda::CurrentStream::get();
    if (stream != nullptr) cuda::check(cudaEventRecord(ended_, stream), "queueing a collective");
  }

 private:
  const int device_;
  cudaEvent_t ended_ = nullptr;  // the last call
};

}  // namespace

std::unique_ptr<Communicator> make_levels(std::unique_ptr<Communicator> host,
                                          const DeviceCommunicatorOptions& options,
                                          const LevelMakers& make) {
  const NodeGrid grid = node_grid(host->machines()).value();
  const int rank = host->rank();
  Inside inside = make_inside(host->split(grid.node_of(rank), rank), make.inside);
  if (const std::optional<int> without = first_without(*host, inside.problem.has_value())) {
    const std::string why = inside.problem ? inside.problem->what() : "that rank says why";
    inside.close();
    if (options.backend != DeviceBackend::kAuto) {
      fail(ErrorCode::kUnsupported,
           "ranks on the node of rank {} cannot reach each other's GPU memory, which "
           "comm.device_backend = \"hierarchical\" needs; use \"nccl\": {}",
           *without, why);
    }
    if (rank == *without) log_warn("NCCL connects GPUs inside nodes, too: {}", why);
    return std::make_unique<NcclCommunicator>(std::move(host), options);
  }
  hierarchical::Levels levels = std::move(inside.levels);
  const OfLevels of_levels{.staging = levels.staging.data() + kStagingBytes, .is_compared = true};
  levels.across = std::make_unique<NcclCommunicator>(host->split(grid.place_of(rank), rank),
                                                     options, of_levels);
  auto flat = std::make_unique<NcclCommunicator>(host->split(0, rank), options, of_levels);
  const NcclCommunicator& all = *flat;
  const auto order = std::make_shared<const CallOrder>(options.device.index);
  levels.flat = std::move(flat);
  return std::make_unique<hierarchical::HierarchicalCommunicator>(
      std::move(host), std::move(levels),
      hierarchical::HierarchicalOptions{
          .two_levels = {.grid = grid,
                         .staging_bytes = kStagingBytes,
                         .tree_order = options.tree_order},
          .forced = options.backend == DeviceBackend::kHierarchical,
          .measure = options.measure,
          .is_exchange = [&all](const Call& call) { return all.is_exchange(call); },
          .check = &NcclCommunicator::refuse_capture,
          .begin = [order] { order->begin(); },
          .end = [order] { order->end(); },
          .make_part = make.part});
}

}  // namespace lockstep::nccl
