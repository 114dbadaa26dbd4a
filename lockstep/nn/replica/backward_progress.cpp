#include "lockstep/nn/replica/backward_progress.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::nn {

BackwardProgress::BackwardProgress(const FlatParameters& flat, std::size_t block,
                                   BlockListener& listener)
    : flat_(flat), block_(block), listener_(listener), finished_(flat.of(block).size()) {}

void BackwardProgress::finished(std::size_t parameter) {
  const FlatParameter* place = flat_.place(block_, parameter);
  if (place == nullptr || place->block != block_) return;
  const std::span<const FlatParameter> own = flat_.of(block_);
  const auto index = static_cast<std::size_t>(place - own.data());
  if (finished_[index]) {
    fail(ErrorCode::kInvalidArgument,
         "a block's backward says twice that it has finished with '{}'; it may add to a gradient "
         "and read a parameter until it says so, and says so once",
         place->name);
  }
  finished_[index] = true;
  if (index != next_) return;
  while (next_ < own.size() && finished_[next_]) ++next_;
  listener_.finished_up_to(block_,
                           next_ < own.size() ? own[next_].offset : flat_.range(block_).end());
}

void BackwardProgress::accumulated(std::size_t parameter, std::int64_t rows) {
  const FlatParameter* place = flat_.place(block_, parameter);
  if (place == nullptr) return;
  const std::int64_t all = place->shape[0];
  const std::int64_t before = std::exchange(accumulated_[place->offset], rows);
  if (rows <= before || rows > all) {
    fail(
        ErrorCode::kInvalidArgument,
        "a block's backward says that it adds no more to {} rows of the gradient of '{}', after {} "
        "of {}; they grow from call to call, and nothing in the block may add to them afterwards",
        rows, place->name, before, all);
  }
  const std::size_t width = place->shape.elements() / static_cast<std::size_t>(all);
  listener_.accumulated(block_, {place->offset, static_cast<std::size_t>(rows) * width});
}

}  // namespace lockstep::nn
