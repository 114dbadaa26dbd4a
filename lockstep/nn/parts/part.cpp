#include "lockstep/nn/parts/part.h"

#include "lockstep/base/error.h"
#include "lockstep/nn/parameters/seed.h"

namespace lockstep::nn {

Tensor reused(const Tensor& spent, const Shape& shape) {
  const auto elements = static_cast<std::int64_t>(spent.elements());
  return spent.reshaped({elements})
      .slice(0, static_cast<std::int64_t>(shape.elements()))
      .reshaped(shape);
}

ops::Dropout dropout_of(const Pass& pass, std::string_view purpose, double probability,
                        std::int64_t elements_per_sequence) {
  if (!pass.training || probability == 0) return {};
  ops::Dropout dropout = {.probability = probability,
                          .seed = seed_for(pass.seed, purpose),
                          .step = pass.step,
                          .first = 0};
  const ContextGroup& context = pass.setup.context;
  if (context.size > 1) {
    dropout.seed = seed_for(dropout.seed, static_cast<std::uint64_t>(context.rank) + 1);
  }
  if (const TokenSlice& slice = pass.setup.slice; !slice.is_whole()) {
    dropout.seed = seed_for(dropout.seed, static_cast<std::uint64_t>(slice.first) + 1);
  }
  // A sequence's numbers do not depend on how a step is cut into micro-batches, as long as they can
  // begin where its elements do: random numbers come in fours.
  if (elements_per_sequence % 4 == 0) {
    dropout.first = pass.first_sequence * static_cast<std::uint64_t>(elements_per_sequence);
  } else {
    dropout.seed = seed_for(dropout.seed, pass.first_sequence);
  }
  return dropout;
}

Extent stream_tokens(const BatchShape& shape, Side side, const TensorGroup& group) {
  const std::int64_t tokens = tokens_of(shape, side);
  if (!group.divides_tokens) return {.first = 0, .count = tokens};
  if (tokens % group.size != 0) {
    fail(
        ErrorCode::kInvalidArgument,
        "{} ranks cannot divide the {} tokens of a micro-batch evenly ({} sequences of {}); choose "
        "another train.micro_batch_size or train.seq_len, or set parallel.sequence = false",
        group.size, tokens, shape.batch, sequence_of(shape, side));
  }
  return share_of(tokens, group);
}

ops::Dropout own_part(ops::Dropout dropout, const Extent& tokens, std::int64_t width) {
  const auto first = static_cast<std::uint64_t>(tokens.first * width);
  // As in dropout_of(): random numbers come in fours.
  if (first % 4 == 0) {
    dropout.first += first;
  } else {
    dropout.seed = seed_for(dropout.seed, first);
  }
  return dropout;
}

const Tensor& checked(const Tensor& field, std::string_view field_name, std::string_view block,
                      DType dtype, const Shape& shape) {
  if (field.dtype() == dtype && field.shape() == shape) return field;
  if (!ops::is_given(field)) {
    fail(ErrorCode::kInvalidArgument, "block '{}' needs the batch's {}, {} {}, which are missing",
         block, field_name, name(dtype), shape.text());
  }
  fail(ErrorCode::kInvalidArgument, "block '{}' expects the batch's {} as {} {}; got {} {}", block,
       field_name, name(dtype), shape.text(), name(field.dtype()), field.shape().text());
}

}  // namespace lockstep::nn
