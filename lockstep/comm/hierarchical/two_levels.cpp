#include "lockstep/comm/hierarchical/two_levels.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <vector>

namespace lockstep::hierarchical {
namespace {

constexpr std::size_t kPieceAlignment = 16;

bool is_floating(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF32 ||
         dtype == DType::kF64;
}

std::size_t rounds_of(std::size_t count, std::size_t most) { return (count + most - 1) / most; }

}  // namespace

TwoLevels::TwoLevels(const Levels& levels, int rank, const TwoLevelOptions& options)
    : levels_(levels),
      options_(options),
      nodes_(static_cast<std::size_t>(options.grid.nodes)),
      places_(static_cast<std::size_t>(options.grid.places)),
      node_(options.grid.node_of(rank)),
      place_(options.grid.place_of(rank)),
      staging_(levels.staging.data()) {}

// ---- what fits

std::size_t TwoLevels::most_of_part(std::size_t element) const {
  return options_.staging_bytes / places_ / kPieceAlignment * kPieceAlignment / element;
}

std::size_t TwoLevels::most_of_block(std::size_t element, bool apart) const {
  const std::size_t blocks = nodes_ + (apart ? places_ : 0);
  return options_.staging_bytes / blocks / kPieceAlignment * kPieceAlignment / element;
}

bool TwoLevels::fits_a_lane(std::size_t count, std::size_t element) const {
  return nodes_ * count * element <= options_.staging_bytes;
}

bool TwoLevels::serves(const Call& call) const {
  if (!call.algorithm.empty()) return false;
  const DType dtype = dtype_of_call(call);
  if (call.kind == Collective::kAllGather) {
    if (!call.varying) return true;
    for (std::size_t place = 0; place < places_; ++place) {
      std::size_t lane = 0;
      for (std::size_t node = 0; node < nodes_; ++node) lane += call.counts[node * places_ + place];
      if (lane * size_of(dtype) > options_.staging_bytes) return false;
    }
    return true;
  }
  if (!reduces(call.kind) || call.op.kind == ReduceOp::kUser) return false;
  const bool halves_places = std::has_single_bit(places_);
  if (call.op.kind == ReduceOp::kMean && !(is_floating(dtype) && halves_places)) return false;
  const bool is_exact =
      call.op.kind == ReduceOp::kMin || call.op.kind == ReduceOp::kMax || !is_floating(dtype);
  return !options_.tree_order || is_exact || (halves_places && size_of(dtype) > 2);
}

std::size_t TwoLevels::rounds(const Call& call, bool is_direct) const {
  const std::size_t element = size_of(dtype_of_call(call));
  const std::size_t parts = places_ * most_of_part(element);
  switch (call.kind) {
    case Collective::kAllReduce:
      if (!is_direct) return rounds_of(call.in.count, parts);
      return 1 + (call.in.count % places_ == 0 ? 0 : 1);
    case Collective::kReduce:
      return rounds_of(call.in.count, parts);
    case Collective::kReduceScatter:
      if (is_direct && fits_a_lane(call.out.count, element)) return 1;
      return rounds_of(call.out.count, most_of_block(element, true));
    default:
      if (call.varying || fits_a_lane(call.in.count, element)) return 1;
      return rounds_of(call.in.count, most_of_block(element, true));
  }
}

// ---- calls

void TwoLevels::run(const Call& call, bool is_direct) const {
  switch (call.kind) {
    case Collective::kAllReduce:
      return all_reduce(call, is_direct);
    case Collective::kReduce:
      return reduce(call);
    case Collective::kReduceScatter:
      return reduce_scatter(call, is_direct);
    default:
      return call.varying ? all_gather_of_blocks(call) : all_gather(call);
  }
}

void TwoLevels::copy(const std::byte* from, std::byte* to, std::size_t count, DType dtype) const {
  if (count == 0 || from == to) return;
  levels_.inside->copy(ConstData(from, count, dtype), Data(to, count, dtype));
}

// Of vectors in symmetric memory, whose parts are of one size.
void TwoLevels::all_reduce_parts(ConstData in, Data out, const ReduceOp& op) const {
  const std::size_t each = in.count / places_;
  const std::size_t first = static_cast<std::size_t>(place_) * each * size_of(in.dtype);
  const Data mine(out.bytes + first, each, in.dtype);
  levels_.inside->reduce_scatter(in, mine, op);
  levels_.across->all_reduce(mine, op);
  levels_.inside->all_gather(mine, out);
}

void TwoLevels::all_reduce(const Call& call, bool is_direct) const {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::size_t count = call.in.count;
  const std::size_t most = places_ * most_of_part(element);
  std::size_t done = 0;
  if (is_direct) done = count / places_ * places_;
  if (done > 0) {
    all_reduce_parts({call.in.bytes, done, dtype}, {call.out.bytes, done, dtype}, call.op);
  }
  while (done < count) {
    const std::size_t now = std::min(most, count - done);
    // What follows the data belongs to no element of the result.
    const Data staged(staging_, (now + places_ - 1) / places_ * places_, dtype);
    copy(call.in.bytes + done * element, staging_, now, dtype);
    all_reduce_parts(staged, staged, call.op);
    copy(staging_, call.out.bytes + done * element, now, dtype);
    done += now;
  }
}

void TwoLevels::reduce(const Call& call) const {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::size_t count = call.in.count;
  const std::size_t most = places_ * most_of_part(element);
  const int root_node = options_.grid.node_of(call.root);
  const int root_place = options_.grid.place_of(call.root);
  const bool is_near = node_ == root_node;
  const bool is_root = is_near && place_ == root_place;
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t now = std::min(most, count - done);
    const std::size_t each = (now + places_ - 1) / places_;
    const Data staged(staging_, each * places_, dtype);
    const Data mine(staging_ + static_cast<std::size_t>(place_) * each * element, each, dtype);
    const Data nothing(nullptr, 0, dtype);
    copy(call.in.bytes + done * element, staging_, now, dtype);
    levels_.inside->reduce_scatter(staged, mine, call.op);
    levels_.across->reduce(mine, is_near ? mine : nothing, call.op, root_node);
    if (is_near) levels_.inside->gather(mine, is_root ? staged : nothing, root_place);
    if (is_root) copy(staging_, call.out.bytes + done * element, now, dtype);
  }
}

void TwoLevels::reduce_scatter(const Call& call, bool is_direct) const {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::size_t count = call.out.count;
  const bool as_it_lies = is_direct && fits_a_lane(count, element);
  const std::size_t most = as_it_lies ? count : most_of_block(element, true);
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t now = std::min(most, count - done);
    std::byte* const staged = staging_ + nodes_ * now * element;
    for (std::size_t node = 0; node < nodes_; ++node) {
      const std::byte* const blocks = call.in.bytes + node * places_ * count * element;
      for (std::size_t place = 0; place < places_ && !as_it_lies; ++place) {
        copy(blocks + (place * count + done) * element, staged + place * now * element, now, dtype);
      }
      levels_.inside->reduce_scatter(ConstData(as_it_lies ? blocks : staged, places_ * now, dtype),
                                     Data(staging_ + node * now * element, now, dtype), call.op);
    }
    levels_.across->reduce_scatter(ConstData(staging_, nodes_ * now, dtype),
                                   Data(call.out.bytes + done * element, now, dtype), call.op);
  }
}

void TwoLevels::all_gather(const Call& call) const {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::size_t count = call.in.count;
  const bool at_once = fits_a_lane(count, element);
  const std::size_t most = at_once ? count : most_of_block(element, true);
  for (std::size_t done = 0; done < count; done += most) {
    const std::size_t now = std::min(most, count - done);
    std::byte* const gathered = staging_ + nodes_ * now * element;
    levels_.across->all_gather(ConstData(call.in.bytes + done * element, now, dtype),
                               Data(staging_, nodes_ * now, dtype));
    for (std::size_t node = 0; node < nodes_; ++node) {
      std::byte* const blocks = call.out.bytes + node * places_ * count * element;
      levels_.inside->all_gather(ConstData(staging_ + node * now * element, now, dtype),
                                 Data(at_once ? blocks : gathered, places_ * now, dtype));
      for (std::size_t place = 0; place < places_ && !at_once; ++place) {
        copy(gathered + place * now * element, blocks + (place * count + done) * element, now,
             dtype);
      }
    }
  }
}

// all_gather_v: the blocks of a node follow each other, those of a lane fit into staging memory.
void TwoLevels::all_gather_of_blocks(const Call& call) const {
  const DType dtype = dtype_of_call(call);
  const std::size_t element = size_of(dtype);
  const std::span<const std::size_t> counts = call.counts;
  std::vector<std::size_t> lane;
  for (std::size_t node = 0; node < nodes_; ++node) {
    lane.push_back(counts[node * places_ + static_cast<std::size_t>(place_)]);
  }
  const std::size_t all = std::accumulate(lane.begin(), lane.end(), std::size_t{0});
  levels_.across->all_gather_v(call.in, Data(staging_, all, dtype), lane);
  std::byte* block = staging_;
  std::byte* out = call.out.bytes;
  for (std::size_t node = 0; node < nodes_; ++node) {
    const std::span<const std::size_t> here = counts.subspan(node * places_, places_);
    const std::size_t total = std::accumulate(here.begin(), here.end(), std::size_t{0});
    levels_.inside->all_gather_v(ConstData(block, lane[node], dtype), Data(out, total, dtype),
                                 here);
    block += lane[node] * element;
    out += total * element;
  }
}

}  // namespace lockstep::hierarchical
