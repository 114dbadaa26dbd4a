// Copies between a GPU and the host on a stream of their own.
#pragma once

#include <optional>

#include "lockstep/tensor/stream.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep {

// Waits for the copy. Without a stream, as on the CPU, it is a plain one.
inline void copy_on(std::optional<Stream>& stream, const Tensor& to, const Tensor& from) {
  if (!stream) return copy(to, from);
  stream->run([&] { copy(to, from); });
  stream->synchronize();
}

}  // namespace lockstep
