// One block of device memory, laid out by lifetime (tensor/layout.h). It is allocated once, with
// exactly the bytes of its layout; getting a tensor from it costs nothing. Outside its lifetime,
// other requests use the bytes of a request.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/layout.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

class Arena {
 public:
  Arena() = default;  // no requests, no bytes
  // Throws Error(kInvalidArgument) where `layout` was not planned for the requests, and what Buffer
  // throws if memory is short.
  Arena(std::vector<Request> requests, Layout layout, Device device = {},
        MemoryBudget* budget = nullptr);
  // Plans the layout.
  explicit Arena(std::vector<Request> requests, Device device = {});

  std::span<const Request> requests() const { return requests_; }
  const Layout& layout() const { return layout_; }
  std::byte* data() const { return buffer_.data(); }
  std::size_t bytes() const { return buffer_.bytes(); }
  Device device() const { return buffer_.device(); }

  // The memory of a request as a tensor, which may be smaller than the request. Throws
  // Error(kInvalidArgument) where it would be larger, or where there is no such request. Valid as
  // long as the Arena, also after a move.
  Tensor tensor(std::size_t request, DType dtype, const Shape& shape) const;
  // All bytes of a request, as u8.
  Tensor whole(std::size_t request) const;

 private:
  const Request& at(std::size_t request) const;

  std::vector<Request> requests_;
  Layout layout_;
  Buffer buffer_;
};

}  // namespace lockstep
