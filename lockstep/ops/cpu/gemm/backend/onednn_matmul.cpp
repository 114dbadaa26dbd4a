#include "lockstep/ops/cpu/gemm/backend/onednn_matmul.h"

#include <array>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::cpu::gemm {
namespace {

dnnl_data_type_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return dnnl_f32;
    case DType::kBF16:
      return dnnl_bf16;
    case DType::kF16:
      return dnnl_f16;
    default:
      return dnnl_data_type_undef;
  }
}

// Dense, or, transposed, as `stride` says.
dnnl_memory_desc_t describe(const OnednnLibrary& library, DType dtype, std::size_t rows,
                            std::size_t columns, std::optional<std::size_t> stride = std::nullopt) {
  const auto n = static_cast<dnnl_dim_t>(columns);
  const dnnl_dims_t extents = {static_cast<dnnl_dim_t>(rows), n};
  const dnnl_dims_t strides = {stride ? 1 : n, stride ? static_cast<dnnl_dim_t>(*stride) : 1};
  dnnl_memory_desc_t description;
  library.expect(
      library.memory_desc_init_by_strides(&description, 2, extents, type_of(dtype), strides),
      "describe a matrix");
  return description;
}

// Where the arguments of what follows a product stand, in the order of Finish.
int follower(int index) { return DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1; }

}  // namespace

std::unique_ptr<OnednnMatmul> OnednnMatmul::make(const OnednnLibrary& library, dnnl_engine_t engine,
                                                 const ProductShape& shape) {
  using Stride = std::optional<std::size_t>;
  const auto a = describe(library, shape.dtype, shape.m, shape.k,
                          shape.a_transposed ? Stride(transposed_stride(shape)) : std::nullopt);
  const auto b = describe(library, shape.dtype, shape.k, shape.n,
                          shape.b_transposed ? Stride(shape.k) : std::nullopt);
  const auto output = describe(library, shape.output, shape.m, shape.n);
  const auto bias = describe(library, shape.output, 1, shape.n);

  dnnl_post_ops_t post_ops = nullptr;
  library.expect(library.post_ops_create(&post_ops), "make a list");
  const OnednnHandle<dnnl_post_ops_t> list(post_ops, library.post_ops_destroy);
  if (shape.accumulate) {
    library.expect(library.post_ops_append_sum(post_ops, 1.0f), "accumulate");
  }
  if (shape.added) {
    library.expect(library.post_ops_append_binary(post_ops, dnnl_binary_add, &output), "add");
  }
  if (shape.factor) {
    library.expect(library.post_ops_append_binary(post_ops, dnnl_binary_mul, &output), "multiply");
  }
  dnnl_primitive_attr_t attributes = nullptr;
  library.expect(library.primitive_attr_create(&attributes), "make attributes");
  const OnednnHandle<dnnl_primitive_attr_t> owner(attributes, library.primitive_attr_destroy);
  library.expect(library.primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user),
                 "leave memory to us");
  library.expect(library.primitive_attr_set_post_ops(attributes, post_ops), "take the list");

  dnnl_matmul_desc_t operation;
  if (library.matmul_desc_init(&operation, &a, &b, shape.bias ? &bias : nullptr, &output) !=
      dnnl_success) {
    return nullptr;
  }
  dnnl_primitive_desc_t description = nullptr;
  if (library.primitive_desc_create(&description, &operation, attributes, engine, nullptr) !=
      dnnl_success) {
    return nullptr;
  }
  std::unique_ptr<OnednnMatmul> matmul(
      new OnednnMatmul(library, engine, {description, library.primitive_desc_destroy}));
  matmul->add_argument(DNNL_ARG_SRC, a);
  matmul->add_argument(DNNL_ARG_WEIGHTS, b);
  matmul->add_argument(DNNL_ARG_DST, output);
  if (shape.bias) matmul->add_argument(DNNL_ARG_BIAS, bias);
  int index = shape.accumulate ? 1 : 0;
  if (shape.added) matmul->add_argument(follower(index++), output);
  if (shape.factor) matmul->add_argument(follower(index++), output);
  return matmul;
}

OnednnMatmul::OnednnMatmul(const OnednnLibrary& library, dnnl_engine_t engine,
                           OnednnHandle<dnnl_primitive_desc_t> description)
    : library_(library),
      engine_(engine),
      description_(std::move(description)),
      primitive_(nullptr, library.primitive_destroy) {
  const char* text = "";
  library_.expect(
      library_.primitive_desc_query(description_.get(), dnnl_query_impl_info_str, 0, &text),
      "name an implementation");
  implementation_ = text;
  const dnnl_memory_desc_t* scratch =
      library_.primitive_desc_query_md(description_.get(), dnnl_query_scratchpad_md, 0);
  if (scratch != nullptr) {
    scratch_ = library_.memory_desc_get_size(scratch);
    if (scratch_ > 0) add_argument(DNNL_ARG_SCRATCHPAD, *scratch);
  }
}

void OnednnMatmul::add_argument(int index, const dnnl_memory_desc_t& description) {
  arguments_.push_back({index, description, {nullptr, library_.memory_destroy}});
}

void OnednnMatmul::prepare() {
  for (Argument& argument : arguments_) {
    dnnl_memory_t memory = nullptr;
    library_.expect(
        library_.memory_create(&memory, &argument.description, engine_, DNNL_MEMORY_NONE),
        "describe memory");
    argument.memory.reset(memory);
  }
  dnnl_primitive_t primitive = nullptr;
  library_.expect(library_.primitive_create(&primitive, description_.get()),
                  "generate the code of a matrix product");
  primitive_.reset(primitive);
}

void OnednnMatmul::run(dnnl_stream_t stream, const Product& product, std::byte* scratch) {
  if (!primitive_) prepare();
  const ProductShape& shape = product.shape;
  const int first = shape.accumulate ? 1 : 0;
  std::array<dnnl_exec_arg_t, 8> arguments;
  int count = 0;
  for (const Argument& argument : arguments_) {
    const void* data = nullptr;
    if (argument.index == DNNL_ARG_SRC) {
      data = product.a;
    } else if (argument.index == DNNL_ARG_WEIGHTS) {
      data = product.b;
    } else if (argument.index == DNNL_ARG_DST) {
      data = product.output;
    } else if (argument.index == DNNL_ARG_BIAS) {
      data = product.finish.bias;
    } else if (argument.index == DNNL_ARG_SCRATCHPAD) {
      data = scratch;
    } else {
      const bool adds = shape.added && argument.index == follower(first);
      data = adds ? product.finish.added : product.finish.factor;
    }
    library_.expect(library_.memory_set_data_handle(argument.memory.get(), const_cast<void*>(data)),
                    "take memory");
    arguments[static_cast<std::size_t>(count++)] = {argument.index, argument.memory.get()};
  }
  library_.expect(library_.primitive_execute(primitive_.get(), stream, count, arguments.data()),
                  "multiply matrices");
  library_.expect(library_.stream_wait(stream), "multiply matrices");
}

}  // namespace lockstep::cpu::gemm
