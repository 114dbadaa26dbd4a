#include "lockstep/comm/transport/layout.h"

#include "lockstep/base/error.h"

namespace lockstep::transport {
namespace {

using schedule::Region;
using schedule::Space;

// Block sizes in elements; a collective without blocks is one block.
std::vector<std::size_t> block_sizes(const Call& call, std::size_t ranks) {
  if (call.varying) return call.counts;
  switch (call.kind) {
    case Collective::kScatter:
    case Collective::kReduceScatter:
      return std::vector(ranks, call.out.count);
    case Collective::kGather:
    case Collective::kAllGather:
      return std::vector(ranks, call.in.count);
    case Collective::kAllToAll:
      return std::vector(ranks, call.in.count / ranks);
    default:
      return {call.in.count};
  }
}

// Byte offsets of the chunks when each block is cut into `chunks` parts of almost equal size.
std::vector<std::size_t> cut(const std::vector<std::size_t>& blocks, std::size_t chunks,
                             std::size_t element) {
  std::vector<std::size_t> offsets;
  offsets.reserve(blocks.size() * chunks + 1);
  std::size_t begin = 0;
  for (std::size_t block : blocks) {
    for (std::size_t c = 0; c < chunks; ++c)
      offsets.push_back((begin + block * c / chunks) * element);
    begin += block;
  }
  offsets.push_back(begin * element);
  return offsets;
}

}  // namespace

bool Layout::Run::contains(int chunk) const {
  return !offsets.empty() && chunk >= first && (chunk - first) % step == 0 &&
         index(chunk) + 1 < offsets.size();
}

Layout::Layout(const Call& call, const std::byte* input, int rank, int ranks, int chunks,
               const std::vector<int>& scratch)
    : input_(input), output_(call.out.bytes) {
  const std::size_t element = size_of(dtype_of_call(call));
  const auto n = static_cast<std::size_t>(ranks);
  const std::vector<std::size_t> blocks = block_sizes(call, n);
  if (call.kind == Collective::kAllToAll) {
    in_run_ = {rank * ranks, 1, cut(blocks, 1, element)};
    out_run_ = {rank, ranks, cut(call.varying ? call.out_counts : blocks, 1, element)};
  } else {
    whole_ = {0, 1, cut(blocks, static_cast<std::size_t>(chunks), element)};
    const auto own = [&] {
      const auto begin = whole_.offsets.begin() + rank * chunks;
      Run run{rank * chunks, 1, {begin, begin + chunks + 1}};
      for (std::size_t& value : run.offsets) value -= *begin;
      return run;
    };
    const bool block_in = call.kind == Collective::kGather || call.kind == Collective::kAllGather;
    const bool block_out =
        call.kind == Collective::kScatter || call.kind == Collective::kReduceScatter;
    in_run_ = block_in ? own() : whole_;
    out_run_ = block_out ? own() : whole_;
  }
  scratch_offsets_.push_back(0);
  for (int chunk : scratch) {
    scratch_offsets_.push_back(scratch_offsets_.back() + chunk_bytes(chunk));
  }
}

std::size_t Layout::chunk_bytes(int chunk) const {
  for (const Run* run : {&whole_, &in_run_, &out_run_}) {
    if (run->contains(chunk)) {
      return run->offsets[run->index(chunk) + 1] - run->offsets[run->index(chunk)];
    }
  }
  fail(ErrorCode::kProtocol, "the schedule uses chunk {}, which this rank does not have", chunk);
}

std::size_t Layout::offset(Space space, int chunk) const {
  if (space == Space::kScratch) return scratch_offsets_.at(static_cast<std::size_t>(chunk));
  const Run& run = space == Space::kInput ? in_run_ : out_run_;
  if (!run.contains(chunk)) {
    fail(ErrorCode::kProtocol, "the schedule uses chunk {} of a space that has none", chunk);
  }
  return run.offsets[run.index(chunk)];
}

std::size_t Layout::bytes(const Region& region) const {
  if (region.count == 0) return 0;
  if (region.space == Space::kScratch) {
    return scratch_offsets_.at(static_cast<std::size_t>(region.first + region.count)) -
           scratch_offsets_.at(static_cast<std::size_t>(region.first));
  }
  const Run& run = region.space == Space::kInput ? in_run_ : out_run_;
  const int last = region.first + (region.count - 1) * run.step;
  if (!run.contains(region.first) || !run.contains(last)) {
    fail(ErrorCode::kProtocol, "the schedule uses chunks {} to {} of a space that lacks them",
         region.first, last);
  }
  return run.offsets[run.index(last) + 1] - run.offsets[run.index(region.first)];
}

std::byte* Layout::address(const Region& region) const {
  const std::size_t at = offset(region.space, region.first);
  switch (region.space) {
    case Space::kInput:
      return const_cast<std::byte*>(input_) + at;
    case Space::kOutput:
      return output_ + at;
    case Space::kScratch:
      return scratch_ + at;
  }
  return nullptr;
}

}  // namespace lockstep::transport
