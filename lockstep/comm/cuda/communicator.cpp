#include "lockstep/comm/cuda/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/cuda_module.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/least_bytes.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

static_assert(sizeof(Operation) == sizeof(Fingerprint));
static_assert(sizeof(Control) + 2 * kSmallBytes <= kSignalBytes);
static_assert(kMostAllocations * kMostRanks * sizeof(std::byte*) == kAddressBytes);
static_assert(symmetric_device_bytes(kStagingBytes) == kStagingBytes);

constexpr std::size_t kBytesOfBlock = std::size_t{8} << 10;  // that a block of threads moves
// Blocks of threads of all ranks on one GPU: they must all run at the same time.
constexpr unsigned kBlocksOfGpu = 128;
constexpr std::size_t kAlignment = 16;

Operation packed(const Fingerprint& fingerprint) {
  Operation operation;
  std::memcpy(&operation, &fingerprint, sizeof(operation));
  return operation;
}

Fingerprint unpacked(const Operation& operation) {
  Fingerprint fingerprint;
  std::memcpy(static_cast<void*>(&fingerprint), &operation, sizeof(operation));
  return fingerprint;
}

std::size_t bytes_of(const ConstData& data) { return data.count * size_of(data.dtype); }

std::size_t part_from(std::size_t bytes, std::size_t first, std::size_t most) {
  return first >= bytes ? 0 : std::min(bytes - first, most);
}

}  // namespace

// ---- what a call moves

struct CudaCommunicator::Blocks {
  bool are_shared = false;  // all ranks read the same block of a rank
  std::array<std::size_t, kMostRanks> in_first{}, in_bytes{}, out_first{}, out_bytes{};

  Blocks(const Call& call, int rank, int size) {
    const auto ranks = static_cast<std::size_t>(size);
    const auto me = static_cast<std::size_t>(rank);
    const auto root = static_cast<std::size_t>(call.root);
    const std::size_t element = size_of(dtype_of_call(call));
    const auto lay_out = [&](auto& first, auto& bytes, const std::vector<std::size_t>& counts,
                             std::size_t equal) {
      std::size_t at = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        first[r] = at;
        bytes[r] = (call.varying ? counts[r] : equal) * element;
        at += bytes[r];
      }
    };
    switch (call.kind) {
      case Collective::kBroadcast:
        are_shared = true;
        in_bytes.fill(rank == call.root ? bytes_of(call.in) : 0);
        if (rank != call.root) out_bytes[root] = bytes_of(call.out);
        break;
      case Collective::kGather:
      case Collective::kAllGather:
        are_shared = true;
        in_bytes.fill(bytes_of(call.in));
        if (call.kind == Collective::kAllGather || rank == call.root) {
          lay_out(out_first, out_bytes, call.counts, call.in.count);
        }
        break;
      case Collective::kScatter:
        if (rank == call.root) lay_out(in_first, in_bytes, call.counts, call.out.count);
        out_bytes[root] = bytes_of(call.out);
        break;
      default:  // all_to_all
        lay_out(in_first, in_bytes, call.counts, call.in.count / ranks);
        lay_out(out_first, out_bytes, call.out_counts, call.in.count / ranks);
    }
    if (are_shared) in_bytes[me] = in_bytes[0];
  }

  std::size_t most() const {
    return std::max(*std::ranges::max_element(in_bytes), *std::ranges::max_element(out_bytes));
  }
};

// The places of a call's data.
struct CudaCommunicator::Placed {
  Place in, out;
  bool is_direct = false;  // all data that others read is in symmetric memory
  std::size_t most = 0;    // bytes of the largest block of any rank
};

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
      bases_(kAddressBytes, options.device) {
  use_device(options_.device.index);
  load_kernels();
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
  const auto sharers = static_cast<unsigned>(memory_.sharers());
  most_blocks_ = std::clamp(kBlocksOfGpu / sharers, 1u, static_cast<unsigned>(kMostBlocks));
  if (memory_.shares_with_processes() && !mps_runs() && rank() == 0) {
    log_warn(
        "{} processes share a GPU, which runs them in turns: communication takes milliseconds. "
        "NVIDIA's multi-process service lets them run together: nvidia-cuda-mps-control -d",
        sharers);
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
}

std::unique_ptr<Communicator> CudaCommunicator::split(int color, int key) {
  std::unique_ptr<Communicator> part = host_->split(color, key);
  if (part == nullptr) return nullptr;
  return std::make_unique<CudaCommunicator>(std::move(part), options_);
}

SymmetricBuffer CudaCommunicator::allocate(std::size_t bytes) {
  PeerMemory::Allocation made;
  collectives_.run([&] {
    throw_failure();
    made = memory_.allocate(bytes);
    use_device(options_.device.index);
    check(cudaMemcpyAsync(bases_.data() + made.index * kMostRanks * sizeof(std::byte*),
                          made.bases.data(), sizeof(made.bases), cudaMemcpyHostToDevice, stream_),
          "preparing symmetric memory");
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
  check(cudaMemcpyAsync(bases_.data() + staging_->index * kMostRanks * sizeof(std::byte*),
                        staging_->bases.data(), sizeof(staging_->bases), cudaMemcpyHostToDevice,
                        stream_),
        "preparing a communicator");
  check(cudaStreamSynchronize(stream_), "preparing a communicator");
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
  if (!reduces(call.kind)) placed.most = Blocks(call, rank(), size()).most();
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
  validate(call, rank(), size());
  if (reduces(call.kind) && call.op.kind == ReduceOp::kUser) {
    fail(ErrorCode::kUnsupported, "{}: GPUs cannot run the reduction \"{}\" of the caller",
         name(call.kind), call.op.user->name);
  }
  if (!call.algorithm.empty()) {
    fail(ErrorCode::kUnsupported,
         "{} by {}: on GPUs algorithms cannot be chosen; leave it to the communicator",
         name(call.kind), call.algorithm);
  }
  const cudaStream_t current = CurrentStream::get();
  if (call.kind == Collective::kSend || call.kind == Collective::kReceive) {
    if (current != nullptr) {
      fail(ErrorCode::kUnsupported, "{} in the order of a stream is not supported",
           name(call.kind));
    }
    return transfer(call);
  }
  use_device(options_.device.index);
  if (current != nullptr) {
    throw_failure();
    return queue(call, current, place(call));
  }
  collectives_.run([&] { execute(call); });
}

void CudaCommunicator::execute(const Call& call) {
  throw_failure();
  use_device(options_.device.index);
  OperationStream::let_wait(options_.device.index, stream_);
  const bool needs_nothing = call.kind == Collective::kBarrier || call.kind == Collective::kCopy;
  queue(call, stream_, needs_nothing ? Placed() : agree(call));
  settle(stream_);
}

Work CudaCommunicator::start(const Call& call) {
  validate(call, rank(), size());
  if (call.kind == Collective::kSend || call.kind == Collective::kReceive) {
    auto& queue = call.kind == Collective::kSend ? sends_ : receives_;
    return queue[static_cast<std::size_t>(call.peer)].submit([this, call] { transfer(call); });
  }
  return collectives_.submit([this, call] { execute(call); });
}

// Through the host, which has the order and the deadlines of messages.
void CudaCommunicator::transfer(const Call& call) {
  const bool sends = call.kind == Collective::kSend;
  const std::size_t bytes = sends ? bytes_of(call.in) : bytes_of(call.out);
  DeviceMemory& memory = memory_of(options_.device);
  std::vector<std::byte> here(bytes);
  if (sends) {
    memory.copy(here.data(), call.in.bytes, bytes);
    host_->send(ConstData(here.data(), call.in.count, call.in.dtype), call.peer);
    bytes_sent_ += bytes;
  } else {
    host_->receive(Data(here.data(), call.out.count, call.out.dtype), call.peer);
    memory.copy(call.out.bytes, here.data(), bytes);
  }
}

Header CudaCommunicator::header_of(const Call& call, const Placed& placed,
                                   std::size_t bytes) const {
  Fingerprint fingerprint = fingerprint_of(call, 0);
  const std::uint64_t tag = hash(fingerprint) + (placed.is_direct ? 1 : 0);
  const bool differ = call.varying && call.kind == Collective::kAllToAll;
  const std::size_t blocks = (bytes + kBytesOfBlock - 1) / kBytesOfBlock;
  return {.operation = packed(fingerprint),
          .tag = static_cast<std::uint32_t>(tag ^ tag >> 32),
          .blocks = differ
                        ? most_blocks_
                        : static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, most_blocks_))};
}

void CudaCommunicator::copy_near(std::byte* to, const std::byte* from, std::size_t bytes,
                                 cudaStream_t stream) const {
  if (bytes == 0 || to == from) return;
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream), "a copy on the GPU");
}

// Bytes of one of `blocks` blocks in the staging memory.
std::size_t CudaCommunicator::piece_of(std::size_t blocks, std::size_t element) const {
  const std::size_t unit = std::max(kAlignment, element);
  return kStagingBytes / blocks / unit * unit;
}

void CudaCommunicator::queue(const Call& call, cudaStream_t stream, const Placed& placed) {
  if (call.kind == Collective::kCopy) {
    return copy_near(call.out.bytes, call.in.bytes, bytes_of(call.in), stream);
  }
  if (call.kind == Collective::kBarrier) {
    return launch_barrier(peers_, header_of(call, placed, 0), stream);
  }
  const bool is_small = call.kind == Collective::kAllReduce && bytes_of(call.in) <= kSmallBytes;
  if (!placed.is_direct && !is_small) {
    if (stream != stream_) {
      fail(ErrorCode::kInvalidArgument,
           "{} in the order of a stream needs symmetric memory; allocate() it, or call it outside "
           "of the stream's tasks",
           describe(call));
    }
    prepare_staging();
  }
  bytes_sent_ += least_bytes_sent(call, rank(), size());
  if (call.kind == Collective::kAllReduce) return queue_all_reduce(call, stream, placed);
  if (reduces(call.kind)) return queue_reduce(call, stream, placed);
  queue_move(call, stream, placed);
}

void CudaCommunicator::queue_move(const Call& call, cudaStream_t stream, const Placed& placed) {
  const Blocks blocks(call, rank(), size());
  const auto ranks = static_cast<std::size_t>(size());
  // Ranks that are not the root may know only their own block; it is the same at all of them.
  const std::size_t all = placed.most * ranks;
  if (placed.is_direct) {
    Move move{.card = {.in = placed.in}, .out = call.out.bytes};
    std::ranges::copy(blocks.out_first, move.first);
    std::ranges::copy(blocks.out_bytes, move.bytes);
    if (!blocks.are_shared) std::ranges::copy(blocks.in_first, move.card.first_for);
    const bool is_agreed = stream == stream_;
    Header header = header_of(call, placed, all);
    if (!is_agreed && call.varying) header.blocks = most_blocks_;
    return launch_move(peers_, header, move, stream);
  }
  std::byte* const staging = staging_->bases[static_cast<std::size_t>(rank())];
  const std::size_t piece = piece_of(blocks.are_shared ? 1 : ranks, size_of(dtype_of_call(call)));
  for (std::size_t done = 0; done < std::max<std::size_t>(placed.most, 1); done += piece) {
    Move move{.card = {.in = {.allocation = staging_->index}}, .out = call.out.bytes};
    for (std::size_t r = 0; r < ranks; ++r) {
      move.first[r] = blocks.out_first[r] + done;
      move.bytes[r] = part_from(blocks.out_bytes[r], done, piece);
      if (blocks.are_shared && r > 0) continue;
      move.card.first_for[r] = r * piece;
      copy_near(staging + r * piece, call.in.bytes + blocks.in_first[r] + done,
                part_from(blocks.in_bytes[r], done, piece), stream);
    }
    launch_move(peers_, header_of(call, placed, std::min(all, kStagingBytes)), move, stream);
  }
}

void CudaCommunicator::queue_reduce(const Call& call, cudaStream_t stream, const Placed& placed) {
  const bool scatters = call.kind == Collective::kReduceScatter;
  const auto me = static_cast<std::size_t>(rank());
  const std::size_t blocks = scatters ? static_cast<std::size_t>(size()) : 1;
  const std::size_t count = call.in.count / blocks;  // of a block
  const bool gets = scatters || rank() == call.root;
  const Elements elements{dtype_of_call(call), call.op.kind};
  const std::size_t element = size_of(elements.dtype);
  if (placed.is_direct) {
    const Reduce reduce{.card = {.in = placed.in},
                        .out = call.out.bytes,
                        .first = scatters ? me * count : 0,
                        .count = gets ? count : 0};
    return launch_reduce(peers_, header_of(call, placed, count * element), elements, reduce,
                         stream);
  }
  std::byte* const staging = staging_->bases[me];
  const std::size_t piece = piece_of(blocks, element) / element;
  for (std::size_t done = 0; done < std::max<std::size_t>(count, 1); done += piece) {
    const std::size_t now = part_from(count, done, piece);
    for (std::size_t b = 0; b < blocks; ++b) {
      copy_near(staging + b * piece * element, call.in.bytes + (b * count + done) * element,
                now * element, stream);
    }
    const Reduce reduce{.card = {.in = {.allocation = staging_->index}},
                        .out = gets ? call.out.bytes + done * element : nullptr,
                        .first = scatters ? me * piece : 0,
                        .count = gets ? now : 0};
    launch_reduce(peers_, header_of(call, placed, now * element), elements, reduce, stream);
  }
}

void CudaCommunicator::queue_all_reduce(const Call& call, cudaStream_t stream,
                                        const Placed& placed) {
  const Elements elements{dtype_of_call(call), call.op.kind};
  const std::size_t element = size_of(elements.dtype);
  const std::size_t bytes = bytes_of(call.in);
  if (bytes <= kSmallBytes) {
    // The data may lie anywhere, so its place is no part of what ranks compare.
    return launch_one_shot(peers_, header_of(call, {}, bytes), elements,
                           {.in = call.in.bytes, .out = call.out.bytes, .count = call.in.count},
                           stream);
  }
  if (placed.is_direct) {
    return launch_two_shot(peers_, header_of(call, placed, bytes), elements,
                           {.card = {.in = placed.in, .out = placed.out}, .count = call.in.count},
                           stream);
  }
  std::byte* const staging = staging_->bases[static_cast<std::size_t>(rank())];
  const Place there{.allocation = staging_->index};
  const std::size_t piece = piece_of(1, element);
  for (std::size_t done = 0; done < bytes; done += piece) {
    const std::size_t now = part_from(bytes, done, piece);
    copy_near(staging, call.in.bytes + done, now, stream);
    launch_two_shot(peers_, header_of(call, placed, now), elements,
                    {.card = {.in = there, .out = there}, .count = now / element}, stream);
    copy_near(call.out.bytes + done, staging, now, stream);
  }
}

}  // namespace lockstep::cuda

extern "C" lockstep::Communicator* lockstep_cuda_communicator(
    const lockstep::DeviceCommunicatorOptions* options, lockstep::Communicator* host) {
  return new lockstep::cuda::CudaCommunicator(std::unique_ptr<lockstep::Communicator>(host),
                                              *options);
}
