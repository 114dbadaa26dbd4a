// How calls become calls of NCCL, copies and kernels, in the order of a stream.
#include <algorithm>
#include <functional>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda/moved_blocks.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/least_bytes.h"
#include "lockstep/comm/nccl/communicator.h"
#include "lockstep/comm/nccl/reduction.h"
#include "lockstep/comm/nccl/traffic.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::nccl {
namespace {

using cuda::bytes_of;
using cuda::MovedBlocks;

constexpr std::size_t kAlignment = 16;
// All-reduces by tree of at most this size: every rank gets all data and combines it.
constexpr std::size_t kSmallBytes = std::size_t{64} << 10;

void copy_near(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  if (bytes == 0 || to == from) return;
  cuda::check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream),
              "a copy on the GPU");
}

// Messages of one group of NCCL.
struct Exchange {
  struct Message {
    int peer;
    const std::byte* from;  // nullptr: it is received
    std::byte* to;
    std::size_t bytes;
  };
  std::vector<Message> messages;

  void send(int peer, const std::byte* from, std::size_t bytes) {
    if (bytes > 0) messages.push_back({peer, from, nullptr, bytes});
  }
  void receive(int peer, std::byte* to, std::size_t bytes) {
    if (bytes > 0) messages.push_back({peer, nullptr, to, bytes});
  }
  void queue(Connection& connection, cudaStream_t stream) const {
    if (messages.empty()) return;
    connection.queue([&](const Library& library, Comm comm) {
      for (const Message& one : messages) {
        const Result result =
            one.from != nullptr
                ? library.send(one.from, one.bytes, Type::kU8, one.peer, comm, stream)
                : library.receive(one.to, one.bytes, Type::kU8, one.peer, comm, stream);
        if (result != Result::kSuccess && result != Result::kInProgress) return result;
      }
      return Result::kSuccess;
    });
  }
};

Op op_of(ReduceOp::Kind op) {
  switch (op) {
    case ReduceOp::kProd:
      return Op::kProd;
    case ReduceOp::kMin:
      return Op::kMin;
    case ReduceOp::kMax:
      return Op::kMax;
    default:
      return Op::kSum;  // mean divides afterwards
  }
}

// Part r of `total` elements that ranks divide among them.
struct Parts {
  std::size_t total;
  std::size_t each;

  Parts(std::size_t elements, std::size_t ranks)
      : total(elements), each((elements + ranks - 1) / ranks) {}
  std::size_t first(std::size_t r) const { return std::min(r * each, total); }
  std::size_t size(std::size_t r) const { return std::min(each, total - first(r)); }
};

}  // namespace

// ---- staging

std::byte* NcclCommunicator::take_staging(cudaStream_t stream) {
  // An event that was never recorded is not waited for.
  cuda::check(cudaStreamWaitEvent(stream, staging_free_), "queueing a collective");
  if (of_levels_.staging != nullptr) return of_levels_.staging;
  if (staging_.data() == nullptr) staging_ = Buffer(kStagingBytes, options_.device);
  return staging_.data();
}

void NcclCommunicator::return_staging(cudaStream_t stream) {
  cuda::check(cudaEventRecord(staging_free_, stream), "queueing a collective");
}

std::size_t NcclCommunicator::staged_elements(std::size_t element) const {
  return kStagingBytes / static_cast<std::size_t>(size()) / kAlignment * kAlignment / element;
}

// ---- calls

bool NcclCommunicator::is_by_tree(const Call& call) const {
  const DType dtype = dtype_of_call(call);
  const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;  // NCCL rounds every sum
  const bool is_float = is_half || dtype == DType::kF32 || dtype == DType::kF64;
  const bool is_extreme = call.op.kind == ReduceOp::kMin || call.op.kind == ReduceOp::kMax;
  // NCCL's minimum of a number and NaN is the number.
  return options_.tree_order || is_half || (is_float && is_extreme);
}

bool NcclCommunicator::is_exchange(const Call& call) const {
  if (reduces(call.kind)) return is_by_tree(call);
  if (call.kind == Collective::kAllGather) return call.varying;
  return call.kind != Collective::kBroadcast && call.kind != Collective::kBarrier;
}

Choice NcclCommunicator::choice(const Call& call) const {
  if (reduces(call.kind) && is_by_tree(call)) {
    return {"tree", options_.tree_order ? "sums in the order of a tree"
                                        : "NCCL would round or treat NaN otherwise"};
  }
  return {"nccl", "NCCL chooses its own algorithm"};
}

void NcclCommunicator::queue(const Call& call, cudaStream_t stream) {
  if (const std::optional<Error> error = failure()) throw *error;
  cuda::use_device(options_.device.index);
  if (call.kind == Collective::kCopy || !connection_) return queue_alone(call, stream);
  Fingerprint mine = fingerprint_of(call, ++operations_);
  if (options_.tree_order) ++mine.extra;  // ranks must agree on that, too
  if (!of_levels_.is_compared) compare(mine);
  if (call.varying && call.kind == Collective::kAllToAll) compare_block_sizes(call);
  bytes_sent_ += least_bytes_sent(call, mine, rank(), size());
  bytes_across_ += is_exchange(call) ? bytes_across_of_exchange(call, rank(), nodes_)
                                     : bytes_across_of_ring(call, rank(), nodes_);
  connection_->begin(mine, stream);
  try {
    queue_on_ranks(call, stream);
  } catch (const Error& error) {
    // Others have queued it and would wait for this rank.
    if (!failure()) host_->abort(error.what());
    connection_->fail_with(error);
    throw;
  }
  connection_->end(stream);
}

// Of the only rank: in place nothing moves, else all of it.
void NcclCommunicator::queue_alone(const Call& call, cudaStream_t stream) const {
  if (call.kind == Collective::kBarrier) return;
  copy_near(call.out.bytes, call.in.bytes, bytes_of(call.in), stream);
}

void NcclCommunicator::queue_on_ranks(const Call& call, cudaStream_t stream) {
  switch (call.kind) {
    case Collective::kBarrier:
      return queue_barrier(stream);
    case Collective::kBroadcast:
      return queue_broadcast(call, stream);
    case Collective::kAllToAll:
      if (call.in.count > 0 && call.in.bytes == call.out.bytes) {
        return queue_all_to_all_in_place(call, stream);
      }
      return queue_blocks(call, stream);
    case Collective::kReduce:
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
      break;
    default:
      return queue_blocks(call, stream);
  }
  if (!is_by_tree(call)) return queue_reduction(call, stream);
  if (call.kind == Collective::kReduceScatter) return queue_reduce_scatter_by_tree(call, stream);
  const bool is_small = call.kind == Collective::kAllReduce && bytes_of(call.in) <= kSmallBytes &&
                        bytes_of(call.in) * static_cast<std::size_t>(size()) <= kStagingBytes;
  if (is_small) return queue_small_all_reduce(call, stream);
  queue_all_reduce_by_tree(call, stream);
}

void NcclCommunicator::queue_barrier(cudaStream_t stream) {
  connection_->queue([&](const Library& library, Comm comm) {
    return library.all_reduce(barrier_.data(), barrier_.data(), 1, Type::kI32, Op::kSum, comm,
                              stream);
  });
}

void NcclCommunicator::queue_broadcast(const Call& call, cudaStream_t stream) {
  if (call.in.count == 0) return;
  connection_->queue([&](const Library& library, Comm comm) {
    return library.broadcast(call.in.bytes, call.out.bytes, bytes_of(call.in), Type::kU8, call.root,
                             comm, stream);
  });
}

// gather, all_gather, scatter, all_to_all: blocks go where they belong.
void NcclCommunicator::queue_blocks(const Call& call, cudaStream_t stream) {
  if (call.kind == Collective::kAllGather && !call.varying) {
    if (call.in.count == 0) return;
    return connection_->queue([&](const Library& library, Comm comm) {
      return library.all_gather(call.in.bytes, call.out.bytes, bytes_of(call.in), Type::kU8, comm,
                                stream);
    });
  }
  const MovedBlocks blocks(call, rank(), size());
  const auto me = static_cast<std::size_t>(rank());
  copy_near(call.out.bytes + blocks.out_first[me], call.in.bytes + blocks.in_first[me],
            blocks.out_bytes[me], stream);
  Exchange exchange;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    const auto r = static_cast<std::size_t>(peer);
    const bool gets = call.kind != Collective::kGather || peer == call.root;
    if (gets) exchange.send(peer, call.in.bytes + blocks.in_first[r], blocks.in_bytes[r]);
    exchange.receive(peer, call.out.bytes + blocks.out_first[r], blocks.out_bytes[r]);
  }
  exchange.queue(*connection_, stream);
}

// From a copy: what comes in would overwrite what others have not got yet.
void NcclCommunicator::queue_all_to_all_in_place(const Call& call, cudaStream_t stream) {
  const std::size_t bytes = bytes_of(call.in);
  void* memory = nullptr;
  cuda::check(cudaMallocAsync(&memory, bytes, stream), "memory for an all_to_all in place");
  const std::unique_ptr<void, std::function<void(void*)>> copy(
      memory, [stream](void* data) { cudaFreeAsync(data, stream); });
  copy_near(static_cast<std::byte*>(memory), call.in.bytes, bytes, stream);
  Call apart = call;
  apart.in.bytes = static_cast<std::byte*>(memory);
  queue_blocks(apart, stream);
}

// ---- reductions

void NcclCommunicator::queue_reduction(const Call& call, cudaStream_t stream) {
  if (call.in.count == 0) return;
  const DType dtype = dtype_of_call(call);
  const bool gets = call.kind != Collective::kReduce || rank() == call.root;
  connection_->queue([&](const Library& library, Comm comm) {
    const void* const in = call.in.bytes;
    void* const out = call.out.bytes;
    const Type type = type_of(dtype);
    const Op op = op_of(call.op.kind);
    switch (call.kind) {
      case Collective::kReduce:
        return library.reduce(in, out, call.in.count, type, op, call.root, comm, stream);
      case Collective::kReduceScatter:
        return library.reduce_scatter(in, out, call.out.count, type, op, comm, stream);
      default:
        return library.all_reduce(in, out, call.in.count, type, op, comm, stream);
    }
  });
  if (call.op.kind == ReduceOp::kMean && gets) {
    launch_mean(call.out.bytes, call.out.count, dtype, size(), stream);
  }
}

void NcclCommunicator::queue_small_all_reduce(const Call& call, cudaStream_t stream) {
  if (call.in.count == 0) return;
  std::byte* const staging = take_staging(stream);
  connection_->queue([&](const Library& library, Comm comm) {
    return library.all_gather(call.in.bytes, staging, bytes_of(call.in), Type::kU8, comm, stream);
  });
  launch_tree({staging, call.in.count, size()}, call.out.bytes, call.in.count, dtype_of_call(call),
              call.op.kind, stream);
  return_staging(stream);
}

void NcclCommunicator::queue_reduce_scatter_by_tree(const Call& call, cudaStream_t stream) {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::size_t count = call.out.count;
  const std::size_t stride = staged_elements(element);
  const auto me = static_cast<std::size_t>(rank());
  if (count == 0) return;
  std::byte* const staging = take_staging(stream);
  for (std::size_t done = 0; done < count; done += stride) {
    const std::size_t now = std::min(stride, count - done);
    const auto block = [&](std::size_t r) { return call.in.bytes + (r * count + done) * element; };
    const auto slot = [&](std::size_t r) { return staging + r * stride * element; };
    Exchange exchange;
    for (int peer = 0; peer < size(); ++peer) {
      const auto r = static_cast<std::size_t>(peer);
      if (peer == rank()) continue;
      exchange.send(peer, block(r), now * element);
      exchange.receive(peer, slot(r), now * element);
    }
    copy_near(slot(me), block(me), now * element, stream);
    exchange.queue(*connection_, stream);
    launch_tree({staging, stride, size()}, call.out.bytes + done * element, now, dtype,
                call.op.kind, stream);
  }
  return_staging(stream);
}

// all_reduce and reduce, in rounds that fill the staging memory: of a round's elements every rank
// combines its part, and then sends the result to all ranks, or to the root.
void NcclCommunicator::queue_all_reduce_by_tree(const Call& call, cudaStream_t stream) {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::size_t count = call.in.count;
  const std::size_t stride = staged_elements(element);
  const auto ranks = static_cast<std::size_t>(size());
  const auto me = static_cast<std::size_t>(rank());
  const bool is_reduce = call.kind == Collective::kReduce;
  const auto gets = [&](int peer) { return !is_reduce || peer == call.root; };
  if (count == 0) return;
  std::byte* const staging = take_staging(stream);
  for (std::size_t done = 0; done < count; done += stride * ranks) {
    const Parts parts(std::min(stride * ranks, count - done), ranks);
    const auto in = [&](std::size_t r) {
      return call.in.bytes + (done + parts.first(r)) * element;
    };
    const auto out = [&](std::size_t r) {
      return call.out.bytes + (done + parts.first(r)) * element;
    };
    const auto slot = [&](std::size_t r) { return staging + r * stride * element; };
    const std::size_t mine = parts.size(me) * element;
    Exchange inputs, results;
    std::byte* const result = gets(rank()) ? out(me) : slot(me);
    for (int peer = 0; peer < size(); ++peer) {
      const auto r = static_cast<std::size_t>(peer);
      if (peer == rank()) continue;
      inputs.send(peer, in(r), parts.size(r) * element);
      inputs.receive(peer, slot(r), mine);
      if (gets(peer)) results.send(peer, result, mine);
      if (gets(rank())) results.receive(peer, out(r), parts.size(r) * element);
    }
    copy_near(slot(me), in(me), mine, stream);
    inputs.queue(*connection_, stream);
    launch_tree({staging, stride, size()}, result, parts.size(me), dtype, call.op.kind, stream);
    results.queue(*connection_, stream);
  }
  return_staging(stream);
}

}  // namespace lockstep::nccl
