// Conversion of gradients between types.
#pragma once

#include <span>

#include "lockstep/comm/call.h"

namespace lockstep::parallel {

// Whether gradients may have this type: f32, bf16 or f16.
bool is_gradient_type(DType dtype);

// out = from; sizes are the same.
void widen(ConstData from, std::span<float> out);
// to = values, rounded to nearest even.
void narrow(std::span<const float> values, Data to);
// to = from, of any two types; they do not overlap.
void convert(ConstData from, Data to);

}  // namespace lockstep::parallel
