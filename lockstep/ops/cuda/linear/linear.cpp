#include "lockstep/ops/cuda/linear/linear.h"

#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.h"
#include "lockstep/ops/cuda/device/clear.h"
#include "lockstep/ops/cuda/elementwise/elementwise.h"
#include "lockstep/ops/cuda/float8/float8.h"
#include "lockstep/ops/cuda/linear/column_sums.h"
#include "lockstep/ops/cuda/linear/few_rows.h"
#include "lockstep/ops/cuda/linear/gelu_slopes.h"
#include "lockstep/ops/cuda/linear/matmuls.h"
#include "lockstep/ops/cuda/linear/plain_matmul.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/copy.h"

namespace lockstep::cuda {
namespace {

using ops::is_given;

constexpr std::size_t kAlignment = 256;

// The alignment of the address, up to 16 bytes.
std::uint8_t alignment(const void* address) {
  const auto number = reinterpret_cast<std::uintptr_t>(address);
  std::uint8_t bytes = 16;
  while (number % bytes != 0) bytes /= 2;
  return bytes;
}

// ---- the three products, by the row-major shapes of a layer

// y^T [out, rows] = weight [out, in] x^T [in, rows].
Product forward_product(std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype) {
  return {.m = out,
          .n = rows,
          .k = in,
          .lda = in,
          .ldb = in,
          .ldd = out,
          .transpose_a = true,
          .input = dtype,
          .output = dtype};
}

// dx^T [in, rows] = weight^T [in, out] dy^T [out, rows].
Product backward_input_product(std::int64_t rows, std::int64_t in, std::int64_t out, DType dtype) {
  return {.m = in,
          .n = rows,
          .k = out,
          .lda = in,
          .ldb = out,
          .ldd = in,
          .input = dtype,
          .output = dtype};
}

// dweight^T [in, out] += x^T [in, rows] dy [rows, out]; dy has rows of `width`.
Product backward_weight_product(std::int64_t rows, std::int64_t in, std::int64_t out,
                                std::int64_t width, DType dtype, DType gradient) {
  return {.m = in,
          .n = out,
          .k = rows,
          .lda = in,
          .ldb = width,
          .ldd = in,
          .transpose_b = true,
          .adds = true,
          .input = dtype,
          .output = gradient};
}

// y^T [columns, rows] = b [columns, inner] a^T [inner, rows], all of 8 bits but y.
Product float8_product(std::int64_t rows, std::int64_t columns, std::int64_t inner, DType output,
                       Float8 a_format, Float8 b_format, bool fast) {
  return {.m = columns,
          .n = rows,
          .k = inner,
          .lda = inner,
          .ldb = inner,
          .ldd = columns,
          .transpose_a = true,
          .input = DType::kU8,
          .output = output,
          .format_a = b_format,
          .format_b = a_format,
          .fast = fast};
}

void align(Product& product, const Operands& operands) {
  product.align_a = alignment(operands.a);
  product.align_b = alignment(operands.b);
  product.align_d = alignment(operands.d);
  product.align_c = product.adds ? alignment(operands.c) : product.align_d;
}

void need_workspace(const Context& context, std::size_t bytes) {
  if (context.workspace_bytes >= bytes) return;
  fail(ErrorCode::kInvalidArgument,
       "a linear layer needs {} bytes of scratch memory on the GPU, and has {}", bytes,
       context.workspace_bytes);
}

// cuBLASLt loads biases in vectors: an unaligned bias is copied to the memory after cuBLASLt's
// workspace.
const void* aligned_bias(const Context& context, const Tensor& bias) {
  if (alignment(bias.data()) == 16) return bias.data();
  need_workspace(context, Matmuls::kWorkspace + bias.bytes());
  std::byte* const copy = context.workspace + Matmuls::kWorkspace;
  copy_on_gpu(copy, bias.data(), bias.bytes(), context.stream);
  return copy;
}

void multiply(Matmuls& matmuls, const Context& context, Product product, const Operands& operands) {
  need_workspace(context, Matmuls::kWorkspace);
  align(product, operands);
  if (product.k > 0 && matmuls.run(context, product, operands)) return;
  plain_matmul(context, product, operands);
}

// y = x weight^T + bias + residual.
void forward(Matmuls& matmuls, const Context& context, const Tensor& x, const Tensor& weight,
             const Tensor& bias, const Tensor& residual, const Tensor& y) {
  Product product = forward_product(x.shape()[0], x.shape()[1], weight.shape()[0], x.dtype());
  Operands operands{.a = weight.data(), .b = x.data(), .d = y.data()};
  if (is_given(residual)) {
    product.adds = true;
    operands.c = residual.data();
  }
  if (is_given(bias)) {
    product.epilogue = Epilogue::kBias;
    operands.bias = aligned_bias(context, bias);
  }
  multiply(matmuls, context, product, operands);
}

// dx = dy weight, or dx += it.
void backward_input(Matmuls& matmuls, const Context& context,
                    const ops::LinearBackwardInput& call) {
  Product product = backward_input_product(call.dy.shape()[0], call.weight.shape()[1],
                                           call.dy.shape()[1], call.dy.dtype());
  Operands operands{.a = call.weight.data(), .b = call.dy.data(), .d = call.dx.data()};
  if (call.accumulate) {
    if (product.k == 0) return;
    product.adds = true;
    operands.c = call.dx.data();
  }
  multiply(matmuls, context, product, operands);
}

// Bytes that kernels move in a microsecond: 80 % of the memory's theoretical bandwidth.
double memory_rate(int device) {
  int kilohertz = 0, bits = 0;
  check(cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device),
        "ask for the memory's clock");
  check(cudaDeviceGetAttribute(&bits, cudaDevAttrGlobalMemoryBusWidth, device),
        "ask for the memory's width");
  return 0.8 * 2 * kilohertz / 1000.0 * bits / 8;
}

// What cuBLASLt requires of the matrix of a GELU epilogue.
bool can_be_aux(const Tensor& z) {
  return alignment(z.data()) == 16 && z.shape()[1] % 8 == 0 && z.dtype() != DType::kF32;
}

}  // namespace

LinearLayers::LinearLayers(const Context& context)
    : multiprocessors_(context.multiprocessors),
      bytes_per_microsecond_(memory_rate(context.device)),
      has_float8_(context.capability >= kLeastFloat8Capability),
      matmuls_(std::make_unique<Matmuls>(context)),
      side_(context.device) {}

LinearLayers::~LinearLayers() = default;

void LinearLayers::run(const Context& context, const ops::Linear& call) {
  if (!is_given(call.y)) return;
  if (few_rows_accepts(call)) return run_few_rows(context, call);
  forward(*matmuls_, context, call.x, call.weight, call.bias, call.residual, call.y);
}

void LinearLayers::run(const Context& context, const ops::LinearActivation& call) {
  if (!is_given(call.y)) return;
  if (few_rows_accepts(call)) return run_few_rows(context, call);
  const Tensor& z = is_given(call.z) ? call.z : call.y;
  run(context,
      ops::Linear{.x = call.x, .weight = call.weight, .bias = call.bias, .residual = {}, .y = z});
  cuda::run(context,
            ops::Activate{
                .activation = call.activation, .z = z, .y = call.y, .derivative = call.derivative});
}

void LinearLayers::run(const Context& context, const ops::LinearBackwardInput& call) {
  if (!is_given(call.dx)) return;
  if (is_given(call.z)) return backward_input_of_gelu(context, call);
  backward_input(*matmuls_, context, call);
  if (!is_given(call.factor)) return;
  cuda::run(context, ops::Multiply{.a = call.dx, .b = call.factor, .y = call.dx});
}

// Whether the epilogue is faster than a separate pass. cuBLASLt's kernels with this epilogue may be
// far slower than those without. The answer depends on times that are stored with the algorithms,
// so it is as reproducible as these.
bool LinearLayers::slopes_ride_along(const Context& context, const Product& product,
                                     const Operands& operands) {
  Product plain = product;
  plain.epilogue = Epilogue::kNone;
  const double fused = matmuls_->microseconds(context, product, operands);
  const double apart = matmuls_->microseconds(context, plain, operands);
  if (fused == 0 || apart == 0) return true;
  constexpr double kLaunch = 2;  // microseconds
  const double bytes = 3.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
                       static_cast<double>(size_of(product.output));
  return fused <= apart + kLaunch + bytes / bytes_per_microsecond_;
}

void LinearLayers::backward_input_of_gelu(const Context& context,
                                          const ops::LinearBackwardInput& call) {
  if (is_given(call.dy) && can_be_aux(call.z)) {
    need_workspace(context, Matmuls::kWorkspace);
    Product product = backward_input_product(call.dy.shape()[0], call.weight.shape()[1],
                                             call.dy.shape()[1], call.dy.dtype());
    product.epilogue = Epilogue::kGeluSlopes;
    const Operands operands{
        .a = call.weight.data(), .b = call.dy.data(), .d = call.dx.data(), .aux = call.z.data()};
    align(product, operands);
    if (slopes_ride_along(context, product, operands) &&
        matmuls_->run(context, product, operands)) {
      return;
    }
  }
  backward_input(*matmuls_, context, call);
  multiply_by_gelu_slopes(context, call.z, call.dx);
}

void LinearLayers::run(const Context& context, const ops::LinearBackwardWeight& call) {
  const std::int64_t rows = call.dy.shape()[0];
  const std::int64_t width = call.dy.shape()[1];
  const std::int64_t first = call.first_output.value_or(0);
  if (rows == 0) {
    if (call.overwrite) clear(context, {call.dweight, call.dbias});
    return;
  }
  if (is_given(call.dbias)) {  // beside the product
    need_workspace(context, scratch_with_sums(rows, call.dbias.elements()));
    Context beside = side_.begin(context);
    beside.workspace += Matmuls::kWorkspace;
    beside.workspace_bytes -= Matmuls::kWorkspace;
    add_column_sums(beside, call.dy, first, call.dbias, call.overwrite);
  }
  if (is_given(call.dweight)) {
    const Product product =
        backward_weight_product(rows, call.x.shape()[1], call.dweight.shape()[0], width,
                                call.dy.dtype(), call.dweight.dtype());
    const std::size_t skipped = static_cast<std::size_t>(first) * size_of(call.dy.dtype());
    multiply(*matmuls_, context, product,
             {.a = call.x.data(),
              .b = call.dy.data() + skipped,
              .c = call.dweight.data(),
              .c_is_zero = call.overwrite,
              .d = call.dweight.data()});
  }
  if (is_given(call.dbias)) side_.end(context);
}

std::size_t LinearLayers::scratch_with_sums(std::int64_t rows, std::size_t columns) const {
  return Matmuls::kWorkspace +
         column_sums_bytes(rows, static_cast<std::int64_t>(columns), multiprocessors_);
}

void LinearLayers::run(const Context& context, const ops::ScaledMatmul& call) {
  if (!is_given(call.y)) return;
  need_workspace(context, Matmuls::kWorkspace);
  Product product = float8_product(call.y.shape()[0], call.y.shape()[1], call.a.shape()[1],
                                   call.y.dtype(), call.a_format, call.b_format, call.fast);
  Operands operands{.a = call.b.data(),
                    .b = call.a.data(),
                    .d = call.y.data(),
                    .scale_a = call.b_scaling.data() + ops::kInverse * sizeof(float),
                    .scale_b = call.a_scaling.data() + ops::kInverse * sizeof(float)};
  if (is_given(call.bias)) {
    product.epilogue = Epilogue::kBias;
    operands.bias = aligned_bias(context, call.bias);
  }
  if (is_given(call.residual)) {
    product.adds = true;
    operands.c = call.residual.data();
  }
  align(product, operands);
  const bool can_run = has_float8_ && product.k > 0 && product.k % 16 == 0 &&
                       product.align_a == 16 && product.align_b == 16 &&
                       alignment(operands.scale_a) == 16 && alignment(operands.scale_b) == 16;
  if (can_run && matmuls_->run(context, product, operands)) return;
  // cuBLASLt fuses a bias or a residual, not both.
  if (can_run && is_given(call.bias) && is_given(call.residual) &&
      call.residual.data() != call.y.data()) {
    product.adds = false;
    align(product, operands);
    if (matmuls_->run(context, product, operands)) {
      cuda::run(context, ops::Add{.a = call.y, .b = call.residual, .y = call.y});
      return;
    }
  }
  plain_scaled_matmul(context, call);
}

std::size_t LinearLayers::scratch(const LinearShape& shape) const {
  const auto out = static_cast<std::size_t>(shape.out);
  const std::size_t bias = Matmuls::kWorkspace + out * size_of(DType::kF32);
  const std::size_t needed =
      std::max({bias, scratch_with_sums(shape.rows, out), quantize_bytes(shape.rows, shape.out)});
  return (needed + kAlignment - 1) / kAlignment * kAlignment;
}

std::string LinearLayers::implementation(const LinearShape& shape, LinearPass pass) const {
  if (shape.fp8) return float8_implementation(shape, pass);
  switch (pass) {
    case LinearPass::kForward:
      if (few_rows_accepts(shape.rows, shape.in, shape.dtype)) return "few rows";
      return matmuls_->implementation(
          forward_product(shape.rows, shape.in, shape.out, shape.dtype));
    case LinearPass::kBackwardInput:
      return matmuls_->implementation(
          backward_input_product(shape.rows, shape.in, shape.out, shape.dtype));
    case LinearPass::kBackwardWeight:
      break;
  }
  return matmuls_->implementation(backward_weight_product(shape.rows, shape.in, shape.out,
                                                          std::max(shape.out, shape.of_outputs),
                                                          shape.dtype, shape.gradient));
}

std::string LinearLayers::float8_implementation(const LinearShape& shape, LinearPass pass) const {
  const auto of = [&](std::int64_t rows, std::int64_t columns, std::int64_t inner, DType output,
                      Float8 a_format, bool fast) {
    return matmuls_->implementation(
        float8_product(rows, columns, inner, output, a_format, Float8::kE4M3, fast));
  };
  switch (pass) {
    case LinearPass::kForward:
      return of(shape.rows, shape.out, shape.in, shape.dtype, Float8::kE4M3, true);
    case LinearPass::kBackwardInput:
      return of(shape.rows, shape.in, shape.out, shape.dtype, Float8::kE5M2, false);
    case LinearPass::kBackwardWeight:
      break;
  }
  return of(shape.out, shape.in, shape.rows, shape.gradient, Float8::kE5M2, false);
}

std::string LinearLayers::chosen_algorithms() const { return matmuls_->chosen_algorithms(); }

}  // namespace lockstep::cuda
