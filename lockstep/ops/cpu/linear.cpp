#include "lockstep/ops/cpu/linear.h"

#include <algorithm>
#include <map>
#include <tuple>
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
      shape.added = true;
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
  } else if (task.pass == LinearPass::kBackwardInput) {
    add([](ProductShape& shape) { shape.added = true; });
    add([](ProductShape& shape) { shape.factor = true; });
  }
  return all;
}

// Who does a pass, and with how much memory.
struct Choice {
  Implementation* implementation = nullptr;
  std::size_t scratch = 0;
};

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
  using Key = std::tuple<std::int64_t, std::int64_t, std::int64_t, DType, DType, LinearPass>;

  explicit State(const Cpu& the_cpu)
      : cpu(the_cpu), implementations(gemm::implementations(the_cpu)) {}

  // The first implementation that accepts all that the pass may ask for; found once per shape.
  const Choice& choose(const LinearTask& task) {
    const LinearShape& layer = task.shape;
    const Key key{layer.rows, layer.in, layer.out, layer.dtype, layer.gradient, task.pass};
    const auto known = choices.find(key);
    if (known != choices.end()) return known->second;
    const std::vector<ProductShape> shapes = variants(task);
    const auto first =
        std::find_if(implementations.begin(), implementations.end(), [&](const auto& each) {
          return std::all_of(shapes.begin(), shapes.end(),
                             [&](const ProductShape& shape) { return each->accepts(shape); });
        });
    Choice choice{first->get(), 0};
    for (const ProductShape& shape : shapes) {
      choice.scratch = std::max(choice.scratch, choice.implementation->scratch(shape));
    }
    return choices.emplace(key, choice).first->second;
  }

  void multiply(const LinearTask& task, const Tensor& a, const Tensor& b, const Tensor& output,
                const gemm::Finish& finish, std::byte* scratch) {
    Product product{.shape = product_shape(task),
                    .a = a.data(),
                    .b = b.data(),
                    .output = output.data(),
                    .finish = finish};
    if (output.elements() == 0) return;
    product.shape.bias = finish.bias != nullptr;
    product.shape.added = finish.added != nullptr;
    product.shape.factor = finish.factor != nullptr;
    choose(task).implementation->run(product, scratch);
  }

  Cpu cpu;
  std::vector<std::unique_ptr<Implementation>> implementations;
  std::map<Key, Choice> choices;
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
  return {layer_of(call.x, call.dy, call.dweight.dtype()), LinearPass::kBackwardWeight};
}

LinearLayers::LinearLayers(const Cpu& cpu) : state_(std::make_unique<State>(cpu)) {}
LinearLayers::~LinearLayers() = default;

void LinearLayers::run(const ops::Linear& call, std::byte* scratch) {
  state_->multiply(task_of(call), call.x, call.weight, call.y,
                   {.bias = where_given(call.bias), .added = where_given(call.residual)}, scratch);
}

void LinearLayers::run(const ops::LinearActivation& call, std::byte* scratch) {
  state_->multiply(task_of(call), call.x, call.weight, call.y,
                   {.bias = where_given(call.bias),
                    .activation = call.activation,
                    .derivative = where_given(call.derivative)},
                   scratch);
}

void LinearLayers::run(const ops::LinearBackwardInput& call, std::byte* scratch) {
  state_->multiply(
      task_of(call), call.dy, call.weight, call.dx,
      {.added = call.accumulate ? call.dx.data() : nullptr, .factor = where_given(call.factor)},
      scratch);
}

void LinearLayers::run(const ops::LinearBackwardWeight& call, std::byte* scratch) {
  state_->multiply(task_of(call), call.dy, call.x, call.dweight, {.added = call.dweight.data()},
                   scratch);
  if (ops::is_given(call.dbias)) gemm::add_column_sums(state_->cpu, call.dy, call.dbias);
}

std::size_t LinearLayers::scratch(const LinearTask& task) const {
  return state_->choose(task).scratch;
}

std::size_t LinearLayers::scratch(const LinearShape& shape) const {
  return std::max({scratch(LinearTask{shape, LinearPass::kForward}),
                   scratch(LinearTask{shape, LinearPass::kBackwardInput}),
                   scratch(LinearTask{shape, LinearPass::kBackwardWeight})});
}

std::string LinearLayers::implementation(const LinearTask& task) const {
  return state_->choose(task).implementation->name(variants(task).back());
}

}  // namespace lockstep::cpu
