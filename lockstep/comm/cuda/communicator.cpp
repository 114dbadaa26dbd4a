#include "lockstep/comm/cuda/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda/device_call.h"
#include "lockstep/comm/cuda/moved_blocks.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/copy.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

constexpr std::size_t slot_bytes_of(unsigned most_blocks) {
  constexpr std::size_t kRounding = 256;  // blocks begin at whole vectors
  const std::size_t most = std::max(kBytesOfBlock, kSmallBytes / most_blocks);
  return (most / kRounding + 2) * kRounding;
}
constexpr bool slots_fit(unsigned most_blocks) {
  return sizeof(Control) + 2 * most_blocks * slot_bytes_of(most_blocks) <= kSignalBytes;
}
static_assert(slots_fit(1) && slots_fit(kMostBlocks));
static_assert(kMostAllocations * kMostRanks * sizeof(std::byte*) == kAddressBytes);
static_assert(symmetric_device_bytes(kStagingBytes) == kStagingBytes);
static_assert(symmetric_device_bytes(kMailboxBytes) == kMailboxBytes);
static_assert(kSmallBytes == kSmallAllReduceBytes);
static_assert(kMostRanks == kMostNativeRanks);

// Blocks of threads of all ranks on one GPU: they must all run at the same time.
constexpr unsigned kBlocksOfGpu = 128;

void refuse_capture(const Call& call, cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a stream is captured");
  if (status == cudaStreamCaptureStatusNone) return;
  fail(ErrorCode::kUnsupported, "{} cannot be captured; queue it outside of the capture",
       name(call.kind));
}

Fingerprint unpacked(const Operation& operation) {
  Fingerprint fingerprint;
  std::memcpy(static_cast<void*>(&fingerprint), &operation, sizeof(operation));
  return fingerprint;
}

}  // namespace

// ---- the watch

class CudaCommunicator::Watch {
 public:
  Watch(const Communicator& host, Report& report)
      : host_(host), report_(report), thread_([this] { run(); }) {}
  ~Watch() {
    ends_ = true;
    thread_.join();
  }

 private:
  void run() {
    constexpr std::chrono::milliseconds kLook(20);
    while (!ends_) {
      if (!host_.wait_for_failure(kLook)) continue;
      report_.abort = 1;
      return;
    }
  }

  const Communicator& host_;
  Report& report_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

// ---- making it

CudaCommunicator::CudaCommunicator(std::unique_ptr<Communicator> host,
                                   const DeviceCommunicatorOptions& options)
    : host_(std::move(host)),
      options_(options),
      memory_(*host_, options.device.index),
      report_(sizeof(Report)),
      bases_(kAddressBytes, options.device),
      messages_(*host_, options.device) {
  use_device(options_.device.index);
  load_kernels();
  load_copies();
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  std::memset(report_.data(), 0, sizeof(Report));
  const PeerMemory::Allocation controls = memory_.allocate(kSignalBytes);
  const auto me = static_cast<std::size_t>(rank());
  check(cudaMemset(controls.bases[me], 0, sizeof(Control)), "preparing a communicator");
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
    peers_.controls[r] = reinterpret_cast<Control*>(controls.bases[r]);
    peers_.small[r] = controls.bases[r] + sizeof(Control);
  }
  peers_.bases = reinterpret_cast<std::byte* const*>(bases_.data());
  peers_.report = reinterpret_cast<Report*>(report_.data());
  peers_.timeout = static_cast<std::uint64_t>(options_.timeout.count());
  peers_.rank = rank();
  peers_.size = size();
  const auto at_once = static_cast<unsigned>(std::max(memory_.sharers(), options_.at_once));
  most_blocks_ = std::clamp(kBlocksOfGpu / at_once, 1u, static_cast<unsigned>(kMostBlocks));
  peers_.slot_bytes = slot_bytes_of(most_blocks_);
  if (memory_.shares_with_processes() && rank() == 0) warn_of_turns(memory_.sharers());
  if (memory_.shares_process()) {
    thread_ranks_.emplace();
    for (cudaEvent_t& one : paces_) {
      check(cudaEventCreateWithFlags(&one, cudaEventDisableTiming), "making an event");
    }
  }
  if (options_.staged) prepare_staging();
  if (options_.messages) {
    load_message_kernels();
    const PeerMemory::Allocation memory = memory_.allocate(kMailboxBytes);
    check(cudaMemset(memory.bases[me], 0, sizeof(MailboxSignals)), "preparing a mailbox");
    mailbox_.emplace(memory, rank(), size());
  }
  check(cudaDeviceSynchronize(), "preparing a communicator");
  host_->barrier();  // all controls are zero
  watch_ = std::make_unique<Watch>(*host_, *peers_.report);
}

CudaCommunicator::~CudaCommunicator() {
  collectives_.run([] {});
  watch_.reset();
  use_device(options_.device.index);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
  for (const cudaEvent_t one : paces_) {
    if (one != nullptr) cudaEventDestroy(one);
  }
}

bool CudaCommunicator::must_pace(cudaStream_t stream) const {
  if (!memory_.shares_process()) return false;
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "asking for the state of a stream");
  return capture == cudaStreamCaptureStatusNone;
}

// Streams of a process share queues of the GPU. What a rank queues behind a collective that waits
// for another rank could stand in the queue before the other rank's. So where ranks are threads,
// none runs ahead.
void CudaCommunicator::pace_collective(cudaStream_t stream) const {
  if (must_pace(stream)) check(cudaStreamSynchronize(stream), "collectives on the GPU");
}

// A send may wait for its receiver, so a rank is two messages ahead, and not more: a process can
// queue about a thousand launches, and the next one blocks all its threads.
void CudaCommunicator::pace_message(cudaStream_t stream) {
  if (!must_pace(stream)) return;
  const cudaEvent_t before_last = paces_[queued_messages_++ % paces_.size()];
  check(cudaEventSynchronize(before_last), "messages on the GPU");
  check(cudaEventRecord(before_last, stream), "recording an event");
}

std::unique_ptr<Communicator> CudaCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = host_->split(color, key);
  if (part == nullptr) return nullptr;
  DeviceCommunicatorOptions options = options_;
  options.messages = false;  // memory that only those take who ask for it
  return std::make_unique<CudaCommunicator>(std::move(part), options);
}

SymmetricBuffer CudaCommunicator::allocate(std::size_t bytes) {
  PeerMemory::Allocation made;
  collectives_.run([&] {
    throw_failure();
    made = memory_.allocate(bytes);
    store_bases(made);
    if (bytes > 0) {
      check(cudaMemsetAsync(made.bases[static_cast<std::size_t>(rank())], 0, bytes, stream_),
            "preparing symmetric memory");
    }
    check(cudaStreamSynchronize(stream_), "preparing symmetric memory");
    host_->barrier();
  });
  std::byte* const mine = made.bases[static_cast<std::size_t>(rank())];
  const std::shared_ptr<void> owner(mine,
                                    [this, index = made.index](void*) { memory_.release(index); });
  return {owner, mine, bytes};
}

// Called by all ranks, which have agreed that they need it.
void CudaCommunicator::prepare_staging() {
  if (staging_) return;
  staging_ = memory_.allocate(kStagingBytes);
  store_bases(*staging_);
}

void CudaCommunicator::store_bases(const PeerMemory::Allocation& made) {
  use_device(options_.device.index);
  check(cudaMemcpyAsync(bases_.data() + made.index * kMostRanks * sizeof(std::byte*),
                        made.bases.data(), sizeof(made.bases), cudaMemcpyHostToDevice, stream_),
        "preparing symmetric memory");
  check(cudaStreamSynchronize(stream_), "preparing symmetric memory");
}

// ---- errors

Error CudaCommunicator::error_of(const Report& report) const {
  const Fingerprint mine = unpacked(report.mine);
  switch (static_cast<Outcome>(report.outcome)) {
    case Outcome::kMismatch:
      return disagreement(rank(), mine, static_cast<int>(report.other), unpacked(report.theirs));
    case Outcome::kOverdue: {
      std::vector<int> missing;
      for (int r = 0; r < size(); ++r) {
        if ((report.missing >> r & 1) != 0) missing.push_back(r);
      }
      return overdue(describe(mine), options_.timeout, missing);
    }
    default:
      break;
  }
  constexpr std::chrono::seconds kNews(2);
  if (host_->wait_for_failure(kNews)) return *host_->failure();
  return Error(ErrorCode::kAborted, "another rank ended " + describe(mine));
}

std::optional<Error> CudaCommunicator::failure() const {
  const std::lock_guard lock(mutex_);
  if (failure_) return failure_;
  const Report& report = *peers_.report;
  const auto outcome = static_cast<Outcome>(report.outcome);
  if (outcome == Outcome::kFine) return host_->failure();
  failure_ = error_of(report);
  if (outcome != Outcome::kStopped) host_->abort(failure_->what());
  return failure_;
}

void CudaCommunicator::throw_failure() const {
  if (const std::optional<Error> error = failure()) throw *error;
}

void CudaCommunicator::abort(std::string_view reason) {
  host_->abort(reason);
  peers_.report->abort = 1;
}

void CudaCommunicator::settle(cudaStream_t stream) {
  check(cudaStreamSynchronize(stream), "a collective on the GPU");
  throw_failure();
}

// ---- calls

Choice CudaCommunicator::choice(const Call& call) const {
  if (call.kind != Collective::kAllReduce) return {"kernel", "the only algorithm on GPUs"};
  const bool is_small = bytes_of(call.in) <= kSmallBytes;
  return {is_small ? "one_shot" : "two_shot",
          fmt::format("one_shot up to {} bytes, two_shot above", kSmallBytes)};
}

CudaCommunicator::Placed CudaCommunicator::place(const Call& call) const {
  const std::size_t in = bytes_of(call.in);
  const std::size_t out = bytes_of(call.out);
  const std::optional<Place> found_in = memory_.find(call.in.bytes, in);
  const std::optional<Place> found_out = memory_.find(call.out.bytes, out);
  const bool gives = in > 0 && !(call.kind == Collective::kBroadcast && rank() != call.root);
  Placed placed{.in = found_in.value_or(Place()), .out = found_out.value_or(Place())};
  placed.is_direct = !gives || found_in;
  if (call.kind == Collective::kAllReduce && out > 0 && !found_out) placed.is_direct = false;
  if (call.kind == Collective::kAllToAll && in > 0 && call.in.bytes == call.out.bytes) {
    placed.is_direct = false;  // others would read what this rank has overwritten
  }
  if (!reduces(call.kind)) placed.most = MovedBlocks(call, rank(), size()).most();
  return placed;
}

CudaCommunicator::Placed CudaCommunicator::agree(const Call& call) {
  Placed placed = place(call);
  const std::array<std::int64_t, 2> mine{placed.is_direct ? 1 : 0,
                                         static_cast<std::int64_t>(placed.most)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(size()));
  host_->all_gather(std::span(mine), std::span(all));
  for (std::size_t r = 0; r < static_cast<std::size_t>(size()); ++r) {
    if (all[2 * r] == 0) placed.is_direct = false;
    placed.most = std::max(placed.most, static_cast<std::size_t>(all[2 * r + 1]));
  }
  return placed;
}

void CudaCommunicator::run(const Call& call) {
  check_device_call(call, rank(), size());
  const cudaStream_t current = CurrentStream::get();
  if (HostMessages::is_message(call)) {
    return mailbox_ && current != nullptr ? queue_message(call, current) : messages_.run(call);
  }
  use_device(options_.device.index);
  if (current != nullptr) {
    throw_failure();
    pace_collective(current);
    return queue(call, current, place(call));
  }
  OperationStream::let_wait(options_.device.index, stream_);
  collectives_.run([&] { execute(call); });
}

void CudaCommunicator::queue_message(const Call& call, cudaStream_t stream) {
  throw_failure();
  use_device(options_.device.index);
  refuse_capture(call, stream);
  pace_message(stream);
  if (call.kind == Collective::kReceive) return mailbox_->queue_receive(peers_, call, stream);
  bytes_sent_ += bytes_of(call.in);
  mailbox_->queue_send(peers_, call, stream);
}

void CudaCommunicator::execute(const Call& call) {
  throw_failure();
  use_device(options_.device.index);
  // A barrier's kernel waits for the other ranks. Where these are threads they may yet allocate or
  // upload, which waits for all kernels of the process.
  if (call.kind == Collective::kBarrier && memory_.shares_process()) host_->barrier();
  const bool needs_nothing = call.kind == Collective::kBarrier || call.kind == Collective::kCopy;
  queue(call, stream_, needs_nothing ? Placed() : agree(call));
  settle(stream_);
}

Work CudaCommunicator::start(const Call& call) {
  check_device_call(call, rank(), size());
  if (HostMessages::is_message(call)) return messages_.start(call);
  // The operations of this thread, not of the one that executes the call.
  use_device(options_.device.index);
  OperationStream::let_wait(options_.device.index, stream_);
  return collectives_.submit([this, call] { execute(call); });
}

}  // namespace lockstep::cuda

extern "C" lockstep::Communicator* lockstep_cuda_communicator(
    const lockstep::DeviceCommunicatorOptions* options, lockstep::Communicator* host) {
  return new lockstep::cuda::CudaCommunicator(std::unique_ptr<lockstep::Communicator>(host),
                                              *options);
}
