// A building block of several Blocks: a norm, attention, a feed-forward network. It declares its
// parameters and tensors and accesses them in a Pass.
//
// A block makes its parts in the order in which it declares them. Each takes the next places in the
// block's spec; so Part::parameter(pass, 0) is the first parameter that this part declared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/nn/block.h"

namespace lockstep::nn {

// The first parameter and tensor that are still to be declared.
struct Place {
  std::size_t parameter = 0;
  std::size_t tensor = 0;
  std::size_t scaled = 0;
};

class Part {
 protected:
  // Takes `parameters` and `tensors` places from `next`. Names begin with `name` and a dot; an
  // empty `name` adds neither.
  Part(Place& next, std::string name, std::size_t parameters, std::size_t tensors,
       std::size_t scaled = 0)
      : place_(next), name_(std::move(name)) {
    next.parameter += parameters;
    next.tensor += tensors;
    next.scaled += scaled;
  }
  ~Part() = default;

  std::string named(std::string_view what) const {
    return name_.empty() ? std::string(what) : name_ + "." + std::string(what);
  }

  // In the order of the spec.
  std::size_t parameter_index(std::size_t index) const { return place_.parameter + index; }
  const Tensor& parameter(const Pass& pass, std::size_t index) const {
    return pass.parameters[place_.parameter + index];
  }
  const Tensor& gradient(const Pass& pass, std::size_t index) const {
    return pass.gradients[place_.parameter + index];
  }
  // This part's backward has finished with its parameter.
  void finished(const Pass& pass, std::size_t index) const {
    pass.finished(place_.parameter + index);
  }
  // Nothing in this block adds more to the gradient of these first rows.
  void accumulated(const Pass& pass, std::size_t index, std::int64_t rows) const {
    pass.accumulated(place_.parameter + index, rows);
  }
  const Tensor& tensor(const Pass& pass, std::size_t index) const {
    return pass.tensors[place_.tensor + index];
  }
  // How a tensor that this part quantizes is scaled, and its amax.
  Tensor scaling(const Pass& pass, std::size_t index) const {
    return pass.scaling.slice(static_cast<std::int64_t>(place_.scaled + index), 1)
        .reshaped({ops::kScaling});
  }
  Tensor amax(const Pass& pass, std::size_t index) const {
    return pass.amax.slice(static_cast<std::int64_t>(place_.scaled + index), 1);
  }

 private:
  Place place_;
  std::string name_;
};

// Which sequences a block works on: those of the batch, or the source sequences of an
// encoder-decoder.
enum class Side : std::uint8_t { kTarget, kSource };

inline std::int64_t sequence_of(const BatchShape& shape, Side side) {
  return side == Side::kTarget ? shape.sequence : shape.source_sequence;
}
inline std::int64_t tokens_of(const BatchShape& shape, Side side) {
  return shape.batch * sequence_of(shape, side);
}
// The tokens of the residual stream that a rank of the group has. Throws Error(kInvalidArgument)
// where the ranks cannot divide them evenly.
Extent stream_tokens(const BatchShape& shape, Side side, const TensorGroup& group);
// The tokens of a sequence on all ranks of its context group, and in all of its slices.
inline std::int64_t whole_sequence_of(const Setup& setup, Side side) {
  return setup.slice.is_whole() ? setup.context.size * sequence_of(setup.shape, side)
                                : setup.slice.of;
}
inline const Tensor& mask_of(const Batch& batch, Side side) {
  return side == Side::kTarget ? batch.key_mask : batch.source_mask;
}

// The first elements of memory whose content is no longer needed, as a tensor of its type.
Tensor reused(const Tensor& spent, const Shape& shape);

// The dropout of a tensor with that many elements per sequence: the same in forward, recomputation
// and backward, different for every purpose, step, sequence, rank of a context group and slice.
// None outside training.
ops::Dropout dropout_of(const Pass& pass, std::string_view purpose, double probability,
                        std::int64_t elements_per_sequence);

// The same of a rank's tokens of a stream of this width, with the numbers that they have in the
// whole stream.
ops::Dropout own_part(ops::Dropout dropout, const Extent& tokens, std::int64_t width);

// A tensor of the batch, which has to be there, of that type and shape. Throws
// Error(kInvalidArgument) that names block and field.
const Tensor& checked(const Tensor& field, std::string_view field_name, std::string_view block,
                      DType dtype, const Shape& shape);

}  // namespace lockstep::nn
