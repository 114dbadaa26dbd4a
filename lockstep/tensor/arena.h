// One block of memory on a device, laid out by lifetime (tensor/layout.h): the plan is the
// allocator. It takes exactly the bytes of its layout, once; handing out costs nothing, and what a
// request holds before its first step and after its last belongs to others.
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
  // throws where there is no room.
  Arena(std::vector<Request> requests, Layout layout, Device device = {},
        MemoryBudget* budget = nullptr);
  // Plans the layout.
  explicit Arena(std::vector<Request> requests, Device device = {});

  std::span<const Request> requests() const { return requests_; }
  const Layout& layout() const { return layout_; }
  std::size_t bytes() const { return buffer_.bytes(); }
  Device device() const { return buffer_.device(); }

  // The memory of a request as a tensor, which may be smaller than the request. Throws
  // Error(kInvalidArgument) where it would be larger, or where there is no such request. Valid as
  // long as the Arena (moves aside).
  Tensor tensor(std::size_t request, DType dtype, const Shape& shape) const;
  // All its bytes, as u8.
  Tensor whole(std::size_t request) const;

 private:
  const Request& at(std::size_t request) const;

  std::vector<Request> requests_;
  Layout layout_;
  Buffer buffer_;
};

}  // namespace lockstep
