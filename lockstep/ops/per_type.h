// A kernel for each compute type: f32, bf16, f16.
#pragma once

#include "lockstep/tensor/dtype.h"

namespace lockstep::cpu {

template <class Function>
struct PerType {
  Function f32;
  Function bf16;
  Function f16;

  Function operator[](DType dtype) const {
    return dtype == DType::kF32 ? f32 : dtype == DType::kBF16 ? bf16 : f16;
  }
};

}  // namespace lockstep::cpu
