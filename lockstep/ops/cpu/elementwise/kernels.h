// The kernels behind elementwise.h. Pointers are to elements of the type that a kernel is picked
// for.
#pragma once

#include <cstddef>

#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/ops/cpu/elementwise/dropout.h"
#include "lockstep/ops/per_type.h"

namespace lockstep::cpu {

struct ElementwiseKernels {
  // `derivative` may be null.
  using Activate = void (*)(const void* z, void* y, void* derivative, std::size_t count);
  PerType<Activate> gelu_tanh, gelu_erf, relu;

  using Pair = void (*)(const void* a, const void* b, void* y, std::size_t count);
  PerType<Pair> multiply, add;

  using SwiGlu = void (*)(const void* gate_up, void* y, std::size_t rows, std::size_t width);
  PerType<SwiGlu> swiglu, geglu;
  using SwiGluBackward = void (*)(const void* gate_up, const void* dy, void* dgate_up,
                                  std::size_t rows, std::size_t width);
  PerType<SwiGluBackward> swiglu_backward, geglu_backward;

  // key.first is the position of element 0 of this call.
  using Drop = void (*)(const DropoutKey& key, const void* x, void* y, std::size_t count);
  PerType<Drop> drop;

  // From the type of the first index to that of the second.
  using Cast = void (*)(const void* from, void* to, std::size_t count);
  PerType<PerType<Cast>> cast;

  using Scale = void (*)(void* x, float factor, std::size_t count);
  PerType<Scale> scale;

  using SoftCap = void (*)(void* x, float cap, std::size_t count);
  PerType<SoftCap> soft_cap;

  // One row: elements (i, i + half) of every head turn by the angle of cosines[i] and sines[i].
  // Heads lie `stride` elements apart.
  using Rotary = void (*)(void* x, const float* cosines, const float* sines, std::size_t heads,
                          std::size_t stride, std::size_t half);
  PerType<Rotary> rotary;
};

LOCKSTEP_KERNEL_TABLE(ElementwiseKernels, elementwise_kernels)

}  // namespace lockstep::cpu
