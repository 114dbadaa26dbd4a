#include "lockstep/ops/ops.h"

#include "lockstep/base/error.h"

namespace lockstep {

std::byte* Ops::scratch_memory(std::size_t needed) const {
  if (scratch_.bytes() < needed) {
    fail(ErrorCode::kInvalidArgument,
         "an operation needs {} bytes of scratch memory and was given {}; use_scratch() takes them",
         needed, scratch_.bytes());
  }
  return scratch_.data();
}

}  // namespace lockstep
