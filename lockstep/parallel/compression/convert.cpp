#include "lockstep/parallel/compression/convert.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/kernels/kernels.h"

namespace lockstep::parallel {

bool is_gradient_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

void widen(ConstData from, std::span<float> out) {
  switch (from.dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), from.bytes, out.size_bytes());
      return;
    case DType::kBF16:
      return compression_kernels().bf16.decode(from.bytes, out.data(), out.size(), false);
    case DType::kF16:
      return compression_kernels().widen_halves(from.bytes, out.data(), out.size());
    default:
      fail(ErrorCode::kInvalidArgument, "gradients of {} cannot be compressed", name(from.dtype));
  }
}

void narrow(std::span<const float> values, Data to) {
  switch (to.dtype) {
    case DType::kF32:
      if (!values.empty()) std::memcpy(to.bytes, values.data(), values.size_bytes());
      return;
    case DType::kBF16:
      return compression_kernels().bf16.encode(values.data(), nullptr, to.bytes, values.size());
    case DType::kF16:
      return compression_kernels().narrow_to_halves(values.data(), to.bytes, values.size());
    default:
      fail(ErrorCode::kInvalidArgument, "gradients of {} cannot be compressed", name(to.dtype));
  }
}

void convert(ConstData from, Data to) {
  std::array<float, 1024> floats;  // stays in the first-level cache
  for (std::size_t done = 0; done < from.count; done += floats.size()) {
    const std::size_t count = std::min(floats.size(), from.count - done);
    const std::span<float> here(floats.data(), count);
    widen({from.bytes + done * size_of(from.dtype), count, from.dtype}, here);
    narrow(here, {to.bytes + done * size_of(to.dtype), count, to.dtype});
  }
}

}  // namespace lockstep::parallel
