#include "lockstep/tensor/arena.h"

#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Not whether lifetimes share bytes: that is what plan_layout() promises.
void check(std::span<const Request> requests, const Layout& layout) {
  if (layout.offsets.size() != requests.size()) {
    fail(ErrorCode::kInvalidArgument,
         "the layout places {} requests, but there are {}; plan it for these",
         layout.offsets.size(), requests.size());
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const std::size_t offset = layout.offsets[i];
    const bool fits = offset <= layout.bytes && requests[i].bytes <= layout.bytes - offset;
    if (!fits || offset % Layout::kAlignment != 0) {
      fail(ErrorCode::kInvalidArgument,
           "the layout has {} bytes and places the {} of '{}' at {}; plan it for these requests",
           layout.bytes, requests[i].bytes, requests[i].name, offset);
    }
  }
}

}  // namespace

Arena::Arena(std::vector<Request> requests, Layout layout, Device device, MemoryBudget* budget)
    : requests_(std::move(requests)), layout_(std::move(layout)) {
  check(requests_, layout_);
  buffer_ = Buffer(layout_.bytes, device, budget);
}

Arena::Arena(std::vector<Request> requests, Device device)
    : requests_(std::move(requests)),
      layout_(plan_layout(requests_)),
      buffer_(layout_.bytes, device) {}

const Request& Arena::at(std::size_t request) const {
  if (request >= requests_.size()) {
    fail(ErrorCode::kInvalidArgument, "request {} does not exist; the arena has {}", request,
         requests_.size());
  }
  return requests_[request];
}

Tensor Arena::tensor(std::size_t request, DType dtype, const Shape& shape) const {
  const Request& planned = at(request);
  const std::size_t needed = Tensor::bytes_of(dtype, shape);
  if (needed > planned.bytes) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' was planned with {} bytes, but as {} of shape {} it needs {}", planned.name,
         planned.bytes, name(dtype), shape.text(), needed);
  }
  return buffer_.tensor(dtype, shape, layout_.offsets[request]);
}

Tensor Arena::whole(std::size_t request) const {
  return tensor(request, DType::kU8, Shape{static_cast<std::int64_t>(at(request).bytes)});
}

}  // namespace lockstep
