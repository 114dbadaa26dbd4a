#include "lockstep/comm/nccl/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda/device_call.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/comm/nccl/reduction.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::nccl {
// ---- making it

NcclCommunicator::NcclCommunicator(std::unique_ptr<Communicator> host,
                                   const DeviceCommunicatorOptions& options,
                                   const OfLevels& of_levels)
    : host_(std::move(host)),
      options_(options),
      of_levels_(of_levels),
      nodes_(host_->machines()),
      messages_(*host_, options.device) {
  if (size() > kMostTreeRanks) {
    fail(ErrorCode::kUnsupported, "{} ranks on GPUs are more than the {} supported", size(),
         kMostTreeRanks);
  }
  cuda::use_device(options_.device.index);
  load_reductions();
  barrier_ = Buffer(kNcclBarrierBytes, options_.device);
  if (size() > 1) connection_.emplace(*host_, options_);
  cuda::check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  cuda::check(cudaEventCreateWithFlags(&staging_free_, cudaEventDisableTiming), "making an event");
  cuda::check(cudaMemsetAsync(barrier_.data(), 0, kNcclBarrierBytes, stream_),
              "preparing a communicator");
  cuda::check(cudaStreamSynchronize(stream_), "preparing a communicator");
}

NcclCommunicator::~NcclCommunicator() {
  collectives_.run([] {});
  cuda::use_device(options_.device.index);
  connection_.reset();
  cudaStreamSynchronize(stream_);
  cudaEventDestroy(staging_free_);
  cudaStreamDestroy(stream_);
}

std::unique_ptr<Communicator> NcclCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part;
  collectives_.run([&] { part = host_->split(color, key); });
  if (part == nullptr) return nullptr;
  return std::make_unique<NcclCommunicator>(std::move(part), options_);
}

SymmetricBuffer NcclCommunicator::allocate(std::size_t bytes) {
  std::shared_ptr<Buffer> owner;
  collectives_.run([&] {
    if (const std::optional<Error> error = failure()) throw *error;
    Fingerprint mine;  // of an allocation
    mine.sequence = ++operations_;
    mine.count = bytes;
    compare(mine);
    cuda::use_device(options_.device.index);
    owner = std::make_shared<Buffer>(symmetric_device_bytes(std::max<std::size_t>(bytes, 1)),
                                     options_.device);
    cuda::check(cudaMemsetAsync(owner->data(), 0, owner->bytes(), stream_),
                "preparing symmetric memory");
    cuda::check(cudaStreamSynchronize(stream_), "preparing symmetric memory");
  });
  std::byte* const data = owner->data();
  return {std::move(owner), data, bytes};
}

// ---- errors

std::optional<Error> NcclCommunicator::failure() const {
  return connection_ ? connection_->failure() : host_->failure();
}

bool NcclCommunicator::wait_for_failure(std::chrono::nanoseconds timeout) const {
  return failure() || host_->wait_for_failure(timeout);
}

void NcclCommunicator::abort(std::string_view reason) {
  host_->abort(reason);
  if (!connection_) return;
  connection_->fail_with(
      host_->failure().value_or(Error(ErrorCode::kAborted, std::string(reason))));
}

void NcclCommunicator::compare(const Fingerprint& mine) {
  if (!connection_) return;
  std::vector<Fingerprint> all(static_cast<std::size_t>(size()));
  host_->all_gather(ConstData(&mine, sizeof(mine), DType::kU8),
                    Data(all.data(), all.size() * sizeof(mine), DType::kU8));
  for (std::size_t r = 0; r < all.size(); ++r) {
    if (all[r] == mine) continue;
    connection_->fail_with(disagreement(rank(), mine, static_cast<int>(r), all[r]));
    throw Error(*failure());
  }
}

// Of all_to_all_v, where a fingerprint has none: a rank must get what another sends.
void NcclCommunicator::compare_block_sizes(const Call& call) {
  if (!connection_) return;
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> mine;
  for (const std::size_t count : call.counts) mine.push_back(static_cast<std::int64_t>(count));
  for (const std::size_t count : call.out_counts) mine.push_back(static_cast<std::int64_t>(count));
  std::vector<std::int64_t> all(mine.size() * ranks);
  host_->all_gather(std::span<const std::int64_t>(mine), std::span(all));
  for (std::size_t from = 0; from < ranks; ++from) {
    for (std::size_t to = 0; to < ranks; ++to) {
      const std::int64_t sent = all[from * 2 * ranks + to];
      const std::int64_t awaited = all[to * 2 * ranks + ranks + from];
      if (sent == awaited) continue;
      connection_->fail_with(
          Error(ErrorCode::kMismatch,
                fmt::format("ranks disagree: in all_to_all_v rank {} sends {} elements to rank {}, "
                            "which expects {}",
                            from, sent, to, awaited),
                {static_cast<int>(from), static_cast<int>(to)}));
      throw Error(*failure());
    }
  }
}

// ---- calls

void NcclCommunicator::refuse_capture(const Call& call) {
  const cudaStream_t stream = cuda::CurrentStream::get();
  if (stream == nullptr) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cuda::check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  if (status == cudaStreamCaptureStatusNone) return;
  fail(ErrorCode::kUnsupported,
       "{} by NCCL cannot be captured: ranks compare every call; queue it outside of the capture, "
       "or use comm.device_backend = \"native\" on one node",
       describe(call));
}

void NcclCommunicator::run(const Call& call) {
  cuda::check_device_call(call, rank(), size());
  if (cuda::HostMessages::is_message(call)) return messages_.run(call);
  if (const cudaStream_t current = cuda::CurrentStream::get(); current != nullptr) {
    refuse_capture(call);
    return collectives_.run([&] { queue(call, current); });
  }
  collectives_.run([&] { execute(call); });
}

Work NcclCommunicator::start(const Call& call) {
  cuda::check_device_call(call, rank(), size());
  if (cuda::HostMessages::is_message(call)) return messages_.start(call);
  return collectives_.submit([this, call] { execute(call); });
}

void NcclCommunicator::execute(const Call& call) {
  cuda::use_device(options_.device.index);
  cuda::OperationStream::let_wait(options_.device.index, stream_);
  try {
    queue(call, stream_);
  } catch (const Error&) {
    cudaStreamSynchronize(stream_);  // what was queued before the error uses the caller's data
    throw;
  }
  cuda::check(cudaStreamSynchronize(stream_), "a collective on the GPU");
  if (const std::optional<Error> error = failure()) throw *error;
}

}  // namespace lockstep::nccl

extern "C" lockstep::Communicator* lockstep_nccl_communicator(
    const lockstep::DeviceCommunicatorOptions* options, lockstep::Communicator* host) {
  return new lockstep::nccl::NcclCommunicator(std::unique_ptr<lockstep::Communicator>(host),
                                              *options);
}
