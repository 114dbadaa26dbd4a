#include "lockstep/ops/cpu/linear/linear.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/ops/cpu/gemm/column_sums.h"
#include "lockstep/ops/cpu/gemm/implementation.h"
#include "lockstep/ops/cpu/gemm/product.h"

namespace lockstep::cpu {
namespace {

using gemm::Implementation;
using gemm::Product;
using gemm::ProductShape;

// The matrix product of a pass, without what is fused to it.
ProductShape product_shape(const LinearTask& task) {
  const LinearShape& layer = task.shape;
  const auto rows = static_cast<std::size_t>(layer.rows);
  const auto in = static_cast<std::size_t>(layer.in);
  const auto out = static_cast<std::size_t>(layer.out);
  ProductShape shape{.dtype = layer.dtype, .output = layer.dtype};
  switch (task.pass) {
    case LinearPass::kForward:  // y [rows, out] = x weight^T
      shape.m = rows, shape.n = out, shape.k = in;
      shape.b_transposed = true;
      break;
    case LinearPass::kBackwardInput:  // dx [rows, in] = dy weight
      shape.m = rows, shape.n = in, shape.k = out;
      break;
    case LinearPass::kBackwardWeight:  // dweight [out, in] += dy^T x
      shape.m = out, shape.n = in, shape.k = rows;
      shape.a_transposed = true;
      shape.a_columns = static_cast<std::size_t>(layer.of_outputs);
      shape.accumulate = true;
      shape.output = layer.gradient;
      break;
  }
  return shape;
}

// The products of a pass with all that can be fused to them.
std::vector<ProductShape> variants(const LinearTask& task) {
  const ProductShape plain = product_shape(task);
  std::vector<ProductShape> all{plain};
  const auto add = [&](auto change) {
    all.push_back(plain);
    change(all.back());
  };
  if (task.pass == LinearPass::kForward) {
    add([](ProductShape& shape) { shape.bias = true; });
    add([](ProductShape& shape) { shape.added = true; });
    add([](ProductShape& shape) { shape.bias = shape.added = true; });
    add([](ProductShape& shape) { shape.accumulate = true; });
    add([](ProductShape& shape) { shape.bias = shape.accumulate = true; });
  } else if (task.pass == LinearPass::kBackwardInput) {
    add([](ProductShape& shape) { shape.accumulate = true; });
    add([](ProductShape& shape) { shape.factor = true; });
  }
  return all;
}

LinearShape layer_of(const Tensor& x, const Tensor& y, DType gradient) {
  return {.rows = x.shape()[0],
          .in = x.shape()[1],
          .out = y.shape()[1],
          .dtype = x.dtype(),
          .gradient = gradient};
}

std::byte* where_given(const Tensor& tensor) {
  return ops::is_given(tensor) ? tensor.data() : nullptr;
}

}  // namespace

struct LinearLayers::State {
  explicit State(const Cpu& the_cpu)
      : cpu(the_cpu), implementations(gemm::implementations(the_cpu)) {}

  // The first that accepts, as the last does for sure.
  std::size_t choose(const ProductShape& shape) const {
    std::size_t index = 0;
    while (!implementations[index]->accepts(shape)) ++index;
    return index;
  }

  void multiply(const LinearTask& task, const std::byte* a, const Tensor& b, const Tensor& output,
                const gemm::Finish& finish, std::byte* scratch) {
    if (output.elements() == 0) return;
    Product product{.shape = product_shape(task),
                    .a = a,
                    .b = b.data(),
                    .output = output.data(),
                    .finish = finish};
    product.shape.bias = finish.bias != nullptr;
    product.shape.accumulate = finish.added == output.data();
    product.shape.added = finish.added != nullptr && !product.shape.accumulate;
    product.shape.factor = finish.factor != nullptr;
    implementations[choose(product.shape)]->run(product, scratch);
  }

  Cpu cpu;
  std::vector<std::unique_ptr<Implementation>> implementations;
};

LinearTask task_of(const ops::Linear& call) {
  return {layer_of(call.x, call.y, call.x.dtype()), LinearPass::kForward};
}
LinearTask task_of(const ops::LinearActivation& call) {
  return {layer_of(call.x, call.y, call.x.dtype()), LinearPass::kForward};
}
LinearTask task_of(const ops::LinearBackwardInput& call) {
  return {layer_of(call.dx, call.dy, call.dx.dtype()), LinearPass::kBackwardInput};
}
LinearTask task_of(const ops::LinearBackwardWeight& call) {
  LinearShape layer = layer_of(call.x, call.dy, call.dweight.dtype());
  if (const std::int64_t out = call.dweight.shape()[0]; out < layer.out) {
    layer.of_outputs = std::exchange(layer.out, out);
  }
  return {layer, LinearPass::kBackwardWeight};
}

LinearLayers::LinearLayers(const Cpu& cpu) : state_(std::make_unique<State>(cpu)) {}
LinearLayers::~LinearLayers() = default;

void LinearLayers::run(const ops::Linear& call, std::byte* scratch) {
  state_->multiply(task_of(call), call.x.data(), call.weight, call.y,
                   {.bias = where_given(call.bias), .added = where_given(call.residual)}, scratch);
}

void LinearLayers::run(const ops::LinearActivation& call, std::byte* scratch) {
  state_->multiply(task_of(call), call.x.data(), call.weight, call.y,
                   {.bias = where_given(call.bias),
                    .activation = call.activation,
                    .derivative = where_given(call.derivative),
                    .z = where_given(call.z)},
                   scratch);
}

void LinearLayers::run(const ops::LinearBackwardInput& call, std::byte* scratch) {
  state_->multiply(
      task_of(call), call.dy.data(), call.weight, call.dx,
      {.added = call.accumulate ? call.dx.data() : nullptr, .factor = where_given(call.factor)},
      scratch);
}

void LinearLayers::run(const ops::LinearBackwardWeight& call, std::byte* scratch) {
  const std::int64_t first = call.first_output.value_or(0);
  const std::byte* a = call.dy.data() + static_cast<std::size_t>(first) * size_of(call.dy.dtype());
  state_->multiply(task_of(call), a, call.x, call.dweight, {.added = call.dweight.data()}, scratch);
  if (ops::is_given(call.dbias)) gemm::add_column_sums(state_->cpu, call.dy, first, call.dbias);
}

std::size_t LinearLayers::scratch(const LinearTask& task) const {
  std::size_t most = 0;
  for (const ProductShape& shape : variants(task)) {
    const auto& implementation = state_->implementations[state_->choose(shape)];
    most = std::max(most, implementation->scratch(shape));
  }
  return most;
}

std::size_t LinearLayers::scratch(const LinearShape& shape) const {
  return std::max({scratch(LinearTask{shape, LinearPass::kForward}),
                   scratch(LinearTask{shape, LinearPass::kBackwardInput}),
                   scratch(LinearTask{shape, LinearPass::kBackwardWeight})});
}

std::string LinearLayers::implementation(const LinearTask& task) const {
  std::size_t last = 0;
  std::string name;
  for (const ProductShape& shape : variants(task)) {
    const std::size_t index = state_->choose(shape);
    if (!name.empty() && index <= last) continue;
    last = index;
    name = state_->implementations[index]->name(shape);
  }
  return name;
}

}  // namespace lockstep::cpu
