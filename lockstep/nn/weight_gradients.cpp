#include "lockstep/nn/weight_gradients.h"

#include "lockstep/base/error.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::nn {
namespace {

std::size_t copy_bytes(std::size_t elements, DType dtype) {
  constexpr std::size_t kAligned = Buffer::kAlignment;
  return (elements * size_of(dtype) + kAligned - 1) / kAligned * kAligned;
}

}  // namespace

std::size_t WeightGradients::bytes(std::int64_t rows, std::int64_t in, std::int64_t out,
                                   DType dtype) {
  return copy_bytes(static_cast<std::size_t>(rows * in), dtype) +
         copy_bytes(static_cast<std::size_t>(rows * out), dtype);
}

Tensor WeightGradients::copied(Ops& ops, const Tensor& from) {
  const std::size_t bytes = copy_bytes(from.elements(), from.dtype());
  if (used_ + bytes > memory_.bytes()) {
    fail(ErrorCode::kInvalidArgument,
         "a block leaves gradients of weights that need {} bytes, but has declared {}",
         used_ + bytes, memory_.bytes());
  }
  const Tensor to(memory_.data() + used_, from.dtype(), from.shape(), memory_.device());
  ops.in_order([&] { copy(to, from); });
  used_ += bytes;
  return to;
}

void WeightGradients::add(Ops& ops, const ops::LinearBackwardWeight& call) {
  ops::LinearBackwardWeight later = call;
  later.dy = copied(ops, call.dy);
  later.x = copied(ops, call.x);
  calls_.push_back(later);
}

void WeightGradients::run(Ops& ops) {
  for (const ops::LinearBackwardWeight& call : calls_) ops.run(call);
  calls_.clear();
  used_ = 0;
}

}  // namespace lockstep::nn
