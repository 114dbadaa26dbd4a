#include "lockstep/ops/cpu/elementwise/elementwise.h"

#include <cstring>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/elementwise/kernels.h"
#include "lockstep/ops/cpu/team/split.h"
#include "lockstep/ops/element.h"

namespace lockstep::cpu {
namespace {

// f(first, count, offset in bytes) for the elements of every thread; `tensors` are gone through.
template <class F>
void split_elements(const Cpu& cpu, const Tensor& like, std::size_t tensors, F&& f) {
  const std::size_t size = size_of(like.dtype());
  split(cpu.team, like.elements(), kElementGrain, tensors * like.bytes(),
        [&](Range range) { f(range, range.begin * size); });
}

const PerType<ElementwiseKernels::Activate>& activation(const ElementwiseKernels& kernels,
                                                        ops::Activation which) {
  switch (which) {
    case ops::Activation::kGeluTanh:
      return kernels.gelu_tanh;
    case ops::Activation::kGeluErf:
      return kernels.gelu_erf;
    case ops::Activation::kRelu:
      return kernels.relu;
  }
  __builtin_unreachable();
}

// The offset behind a pointer, null staying null.
std::byte* at(const Tensor& tensor, std::size_t bytes) {
  return tensor.data() == nullptr ? nullptr : tensor.data() + bytes;
}

template <class Call>
void run_pair(const Cpu& cpu, const Call& call, const PerType<ElementwiseKernels::Pair>& kernels) {
  const auto kernel = kernels[call.a.dtype()];
  split_elements(cpu, call.a, 3, [&](Range range, std::size_t bytes) {
    kernel(at(call.a, bytes), at(call.b, bytes), at(call.y, bytes), range.size());
  });
}

}  // namespace

void run(const Cpu& cpu, const ops::Activate& call) {
  ops::check(call);
  const auto kernel = activation(elementwise_kernels(cpu.isa), call.activation)[call.z.dtype()];
  const Tensor derivative = ops::is_given(call.derivative) ? call.derivative : Tensor();
  split_elements(cpu, call.z, 3, [&](Range range, std::size_t bytes) {
    kernel(at(call.z, bytes), at(call.y, bytes), at(derivative, bytes), range.size());
  });
}

void run(const Cpu& cpu, const ops::Multiply& call) {
  ops::check(call);
  run_pair(cpu, call, elementwise_kernels(cpu.isa).multiply);
}

void run(const Cpu& cpu, const ops::Add& call) {
  ops::check(call);
  run_pair(cpu, call, elementwise_kernels(cpu.isa).add);
}

void run(const Cpu& cpu, const ops::SwiGlu& call) {
  ops::check(call);
  const ElementwiseKernels& kernels = elementwise_kernels(cpu.isa);
  const auto kernel =
      (call.gate == ops::Gate::kSilu ? kernels.swiglu : kernels.geglu)[call.y.dtype()];
  const auto rows = static_cast<std::size_t>(call.y.shape()[0]);
  const auto width = static_cast<std::size_t>(call.y.shape()[1]);
  const std::size_t row_bytes = width * size_of(call.y.dtype());
  split(cpu.team, rows, 1, 3 * call.y.bytes(), [&](Range range) {
    kernel(at(call.gate_up, range.begin * 2 * row_bytes), at(call.y, range.begin * row_bytes),
           range.size(), width);
  });
}

void run(const Cpu& cpu, const ops::SwiGluBackward& call) {
  ops::check(call);
  const ElementwiseKernels& kernels = elementwise_kernels(cpu.isa);
  const bool silu = call.gate == ops::Gate::kSilu;
  const auto kernel = (silu ? kernels.swiglu_backward : kernels.geglu_backward)[call.dy.dtype()];
  const auto rows = static_cast<std::size_t>(call.dy.shape()[0]);
  const auto width = static_cast<std::size_t>(call.dy.shape()[1]);
  const std::size_t row_bytes = width * size_of(call.dy.dtype());
  split(cpu.team, rows, 1, 5 * call.dy.bytes(), [&](Range range) {
    const std::size_t offset = range.begin * row_bytes;
    kernel(at(call.gate_up, 2 * offset), at(call.dy, offset), at(call.dgate_up, 2 * offset),
           range.size(), width);
  });
}

void run(const Cpu& cpu, const ops::Drop& call) {
  ops::check(call);
  if (call.dropout.probability == 0) {
    if (call.x.data() != call.y.data()) run(cpu, ops::Cast{.from = call.x, .to = call.y});
    return;
  }
  const auto kernel = elementwise_kernels(cpu.isa).drop[call.x.dtype()];
  const DropoutKey key = dropout_key(call.dropout);
  split_elements(cpu, call.x, 2, [&](Range range, std::size_t bytes) {
    DropoutKey from_here = key;
    from_here.first += range.begin;
    kernel(from_here, at(call.x, bytes), at(call.y, bytes), range.size());
  });
}

void run(const Cpu& cpu, const ops::Cast& call) {
  ops::check(call);
  const DType from = call.from.dtype();
  const DType to = call.to.dtype();
  split(cpu.team, call.from.elements(), kElementGrain, call.from.bytes() + call.to.bytes(),
        [&](Range range) {
          const std::byte* source = at(call.from, range.begin * size_of(from));
          std::byte* target = at(call.to, range.begin * size_of(to));
          if (from == to) {
            std::memcpy(target, source, range.size() * size_of(from));
          } else if (from != DType::kF64 && to != DType::kF64) {
            elementwise_kernels(cpu.isa).cast[from][to](source, target, range.size());
          } else {  // rare: checks and statistics
            ops::with_float_type(from, [&]<class From>(From) {
              ops::with_float_type(to, [&]<class To>(To) {
                const auto* f = reinterpret_cast<const From*>(source);
                auto* t = reinterpret_cast<To*>(target);
                for (std::size_t i = 0; i < range.size(); ++i) {
                  t[i] = ops::rounded<To>(ops::to_double(f[i]));
                }
              });
            });
          }
        });
}

void run(const Cpu& cpu, const ops::Scale& call) {
  ops::check(call);
  const auto kernel = elementwise_kernels(cpu.isa).scale[call.x.dtype()];
  split_elements(cpu, call.x, 2, [&](Range range, std::size_t bytes) {
    kernel(at(call.x, bytes), static_cast<float>(call.factor), range.size());
  });
}

void run(const Cpu& cpu, const ops::SoftCap& call) {
  ops::check(call);
  const auto kernel = elementwise_kernels(cpu.isa).soft_cap[call.x.dtype()];
  split_elements(cpu, call.x, 2, [&](Range range, std::size_t bytes) {
    kernel(at(call.x, bytes), static_cast<float>(call.cap), range.size());
  });
}

}  // namespace lockstep::cpu
