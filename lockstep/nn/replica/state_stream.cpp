#include "lockstep/nn/replica/state_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::nn {
namespace {

// Parameters of 16 bits follow from the master copy: an update, or rounding, writes all of them,
// and nobody who wants what is kept reads them.
std::vector<RowAccess> access_of(const Replica& replica, StateAccess access, Tensor States::*only) {
  const bool rounds = replica.setup().dtype != DType::kF32;
  std::vector<RowAccess> rows;
  for (Tensor States::*const row : replica.filed_rows()) {
    const bool follows = rounds && row == &States::parameters;
    const bool is_master = row == (rounds ? &States::master : &States::parameters);
    const bool is_meant = only == nullptr || only == row || (only == &States::master && is_master);
    RowAccess way;
    if (access == StateAccess::kRound) {
      way = {.reads = is_master, .writes = follows};
    } else if (is_meant) {
      way = {.reads = access != StateAccess::kWrite && (!follows || only == row),
             .writes = access != StateAccess::kRead};
    }
    rows.push_back(way);
  }
  return rows;
}

}  // namespace

StateStream::StateStream(Replica& replica, StateAccess access, Tensor States::*only)
    : replica_(replica), end_block_(replica.flat().blocks()) {
  FlatFile* const file = replica.state_file();
  if (file != nullptr) filed_.emplace(*file, access_of(replica, access, only));
}

StateStream::StateStream(Replica& replica, StateAccess access, std::size_t block)
    : replica_(replica), next_block_(block), end_block_(block + 1) {
  FlatFile* const file = replica.state_file();
  if (file != nullptr) filed_.emplace(*file, access_of(replica, access, nullptr), block);
}

bool StateStream::next() {
  if (filed_) {
    const RowChunk* const chunk = filed_->next();
    if (chunk == nullptr) return false;
    block_ = chunk->block;
    range_ = chunk->range;
    return true;
  }
  if (next_block_ == end_block_) return false;
  block_ = next_block_++;
  range_ = replica_.my_range(block_);
  return true;
}

States StateStream::states() const {
  const std::size_t first = range_.first - replica_.my_range(block_).first;
  States states = replica_.mine(block_).slice({first, range_.elements});
  const auto rows = replica_.filed_rows();
  for (std::size_t i = 0; filed_ && i < rows.size(); ++i) states.*rows[i] = filed_->row(i);
  const bool is_master = filed_ && replica_.setup().dtype == DType::kF32 &&
                         replica_.plan().tiers.parameters == Tier::kFile;
  if (is_master) states.master = states.parameters;
  return states;
}

void for_parameters_in(const FlatParameters& flat, std::size_t block, FlatRange range,
                       const std::function<void(const FlatParameter& parameter, std::size_t first,
                                                FlatRange within)>& f) {
  for (const FlatParameter& parameter : flat.all()) {
    if (parameter.block != block) continue;
    const std::size_t first = std::max(parameter.offset, range.first);
    const std::size_t end = std::min(parameter.offset + parameter.shape.elements(), range.end());
    if (first < end) f(parameter, first - parameter.offset, {first - range.first, end - first});
  }
}

}  // namespace lockstep::nn
