#include "lockstep/tensor/dtype.h"

namespace lockstep {

std::string_view name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI8:
      return "i8";
    case DType::kU8:
      return "u8";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
  }
  return "?";
}

std::optional<DType> dtype_from_name(std::string_view wanted) {
  for (DType dtype : kAllDTypes) {
    if (name(dtype) == wanted) return dtype;
  }
  return std::nullopt;
}

}  // namespace lockstep
