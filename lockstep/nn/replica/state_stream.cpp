#include "lockstep/nn/replica/state_stream.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::nn {
namespace {

// 16-bit parameters follow from the master copy: an update, or rounding, writes all of them, and
// readers of the states read the master copy instead.
std::vector<BufferAccess> access_of(const Replica& replica, StateAccess access,
                                    Tensor States::*only) {
  const bool rounds = replica.setup().dtype != DType::kF32;
  std::vector<BufferAccess> buffers;
  for (Tensor States::*const buffer : replica.filed_states()) {
    const bool follows = rounds && buffer == &States::parameters;
    const bool is_master = buffer == (rounds ? &States::master : &States::parameters);
    const bool is_meant =
        only == nullptr || only == buffer || (only == &States::master && is_master);
    BufferAccess way;
    if (access == StateAccess::kRound) {
      way = {.reads = is_master, .writes = follows};
    } else if (is_meant) {
      way = {.reads = access != StateAccess::kWrite && (!follows || only == buffer),
             .writes = access != StateAccess::kRead};
    }
    buffers.push_back(way);
  }
  return buffers;
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
    const FlatChunk* const chunk = filed_->next();
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
  const auto buffers = replica_.filed_states();
  for (std::size_t i = 0; filed_ && i < buffers.size(); ++i) states.*buffers[i] = filed_->buffer(i);
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
