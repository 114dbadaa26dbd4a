// How calls become kernels: on symmetric memory directly, else in pieces through staging memory.
#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda/communicator.h"
#include "lockstep/comm/cuda/moved_blocks.h"
#include "lockstep/comm/fingerprint.h"
#include "lockstep/comm/least_bytes.h"
#include "lockstep/tensor/cuda/copy.h"

namespace lockstep::cuda {
namespace {

static_assert(sizeof(Operation) == sizeof(Fingerprint));

constexpr std::size_t kAlignment = 16;

Operation packed(const Fingerprint& fingerprint) {
  Operation operation;
  std::memcpy(&operation, &fingerprint, sizeof(operation));
  return operation;
}

std::size_t part_from(std::size_t bytes, std::size_t first, std::size_t most) {
  return first >= bytes ? 0 : std::min(bytes - first, most);
}

}  // namespace

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
  copy_on_gpu(to, from, bytes, stream);
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
    const bool differ = call.varying;  // then ranks do not know how many pieces others have
    if (stream != stream_ && (!options_.staged || differ)) {
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
  const MovedBlocks blocks(call, rank(), size());
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
