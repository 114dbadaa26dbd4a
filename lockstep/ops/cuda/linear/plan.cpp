#include "lockstep/ops/cuda/linear/plan.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "lockstep/base/error.h"

namespace lockstep::cuda {
namespace {

constexpr int kMostCandidates = 16;

cudaDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return CUDA_R_16BF;
    case DType::kF16:
      return CUDA_R_16F;
    default:
      return CUDA_R_32F;
  }
}

cudaDataType_t type_of(DType dtype, const std::optional<Float8>& format) {
  if (!format) return type_of(dtype);
  return *format == Float8::kE4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
}

cublasLtEpilogue_t epilogue_of(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kBias:
      return CUBLASLT_EPILOGUE_BIAS;
    case Epilogue::kGeluSlopes:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

bool has_bias(Epilogue epilogue) { return epilogue == Epilogue::kBias; }
bool has_aux(Epilogue epilogue) { return epilogue == Epilogue::kGeluSlopes; }

bool is_multiple(std::uint64_t value, std::uint32_t of) { return value % of == 0; }

// With split-K an epilogue would work on sums that are combined in the output's type.
bool may_split(const Product& product) {
  return product.output == DType::kF32 || product.epilogue == Epilogue::kNone;
}

bool lies_on_16_bytes(const Product& product) {
  const auto is_even = [](std::int64_t leading, DType dtype) {
    return is_multiple(static_cast<std::uint64_t>(leading) * size_of(dtype), 16);
  };
  return product.align_a == 16 && product.align_b == 16 && product.align_c == 16 &&
         product.align_d == 16 && is_even(product.lda, product.input) &&
         is_even(product.ldb, product.input) && is_even(product.ldd, product.output);
}

// Whether cuBLASLt's kernels may round the sum to 16 bits before they add C: those for odd
// addresses and those for small matrices do.
bool rounds_early(const Product& product) {
  constexpr std::int64_t kSmall = 128;
  if (product.output == DType::kF32 || !product.adds) return false;
  if (has_bias(product.epilogue) && !lies_on_16_bytes(product)) return true;
  return product.m < kSmall && product.n < kSmall;
}

template <class T>
void set(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value),
        "describe a product to cuBLASLt");
}
template <class T>
void set(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
        "tell cuBLASLt what algorithms may do");
}

// The value of an algorithm's setting; `otherwise` if it has no such setting.
template <class T>
T configured(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t attribute,
             T otherwise) {
  T value{};
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoConfigGetAttribute(&algo, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS && written == sizeof value ? value : otherwise;
}

// The least alignment that the algorithm supports; 1 if it does not report one.
std::uint32_t least_alignment(const cublasLtMatmulAlgo_t& algo,
                              cublasLtMatmulAlgoCapAttributes_t attribute) {
  std::uint32_t value = 0;
  std::size_t written = 0;
  const cublasStatus_t status =
      cublasLtMatmulAlgoCapGetAttribute(&algo, attribute, &value, sizeof value, &written);
  return status == CUBLAS_STATUS_SUCCESS && written == sizeof value && value > 0 ? value : 1;
}

}  // namespace

void check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::kSystem, "cannot {}: {} ({})", what, cublasLtGetStatusName(status),
       cublasLtGetStatusString(status));
}

std::string describe(const cublasLtMatmulAlgo_t& algo) {
  std::string text =
      fmt::format("cublaslt algo {} tile {} stages {}",
                  configured<std::int32_t>(algo, CUBLASLT_ALGO_CONFIG_ID, -1),
                  configured<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID, 0),
                  configured<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID, 0));
  if (const auto cluster =
          configured<std::uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 0)) {
    text += fmt::format(" cluster {}", cluster);
  }
  if (const auto swizzling =
          configured<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 0)) {
    text += fmt::format(" swizzling {}", swizzling);
  }
  if (const auto option = configured<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 0)) {
    text += fmt::format(" option {}", option);
  }
  if (const auto split = configured<std::int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1);
      split > 1) {
    text += fmt::format(" split-k {}", split);
  }
  return text;
}

Plan::Plan(cublasLtHandle_t handle, const Product& product) : handle_(handle), product_(product) {
  check(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "describe a product to cuBLASLt");
  const auto operation = [](bool transpose) {
    return static_cast<std::int32_t>(transpose ? CUBLAS_OP_T : CUBLAS_OP_N);
  };
  set(&operation_, CUBLASLT_MATMUL_DESC_TRANSA, operation(product.transpose_a));
  set(&operation_, CUBLASLT_MATMUL_DESC_TRANSB, operation(product.transpose_b));
  set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE,
      static_cast<std::uint32_t>(epilogue_of(product.epilogue)));
  // The choice of an algorithm uses only the alignment of these addresses: 16 bytes.
  void* const aligned = reinterpret_cast<void*>(std::uintptr_t{16});
  if (has_bias(product.epilogue)) {
    set(&operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned);
    set(&operation_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        static_cast<std::int32_t>(type_of(product.output)));
  }
  if (has_aux(product.epilogue)) {
    set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aligned);
    set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, product.ldd);
  }
  if (product.format_a) {
    set(&operation_, CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(product.fast));
    set(&operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, aligned);
    set(&operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, aligned);
  }
  const auto layout = [](cublasLtMatrixLayoutOpaque_t& matrix, cudaDataType_t type,
                         std::int64_t rows, std::int64_t columns, std::int64_t leading) {
    check(cublasLtMatrixLayoutInit(&matrix, type, static_cast<std::uint64_t>(rows),
                                   static_cast<std::uint64_t>(columns), leading),
          "describe a matrix to cuBLASLt");
  };
  layout(a_, type_of(product.input, product.format_a), product.transpose_a ? product.k : product.m,
         product.transpose_a ? product.m : product.k, product.lda);
  layout(b_, type_of(product.input, product.format_b), product.transpose_b ? product.n : product.k,
         product.transpose_b ? product.k : product.n, product.ldb);
  layout(d_, type_of(product.output), product.m, product.n, product.ldd);
}

bool Plan::allows(const cublasLtMatmulAlgo_t& algo) const {
  const auto scheme = configured<std::uint32_t>(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 0);
  const bool splits = configured<std::int32_t>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 1) > 1;
  if (splits && (!may_split(product_) || scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) {
    return false;
  }
  if (scheme & (CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) {
    return false;
  }
  const auto fits = [&](cublasLtMatmulAlgoCapAttributes_t attribute, std::uint8_t address,
                        std::int64_t leading, DType dtype) {
    const std::uint32_t least = least_alignment(algo, attribute);
    // Addresses are known up to 16 bytes, which is the most that a load takes.
    if (least > 16) return is_multiple(address, 16);
    return is_multiple(address, least) &&
           is_multiple(static_cast<std::uint64_t>(leading) * size_of(dtype), least);
  };
  return fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, product_.align_a, product_.lda,
              product_.input) &&
         fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES, product_.align_b, product_.ldb,
              product_.input) &&
         (!product_.adds || fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, product_.align_c,
                                 product_.ldd, product_.output)) &&
         fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES, product_.align_d, product_.ldd,
              product_.output);
}

std::vector<Algorithm> Plan::candidates(std::size_t workspace) {
  if (rounds_early(product_)) return {};
  cublasLtMatmulPreferenceOpaque_t preference;
  check(cublasLtMatmulPreferenceInit(&preference), "tell cuBLASLt what algorithms may do");
  set(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace});
  set(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
      static_cast<std::uint32_t>(may_split(product_) ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE
                                                     : CUBLASLT_REDUCTION_SCHEME_NONE));
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t{product_.align_a});
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t{product_.align_b});
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t{product_.align_c});
  set(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t{product_.align_d});

  std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> found{};
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle_, &operation_, &a_, &b_, &d_, &d_, &preference, kMostCandidates, found.data(), &count);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return {};
  check(status, "ask cuBLASLt for algorithms");
  std::vector<Algorithm> algorithms;
  for (int i = 0; i < count; ++i) {
    const cublasLtMatmulHeuristicResult_t& one = found[static_cast<std::size_t>(i)];
    if (one.state != CUBLAS_STATUS_SUCCESS || one.workspaceSize > workspace) continue;
    if (allows(one.algo)) algorithms.push_back({one.algo, one.workspaceSize});
  }
  return algorithms;
}

std::optional<Algorithm> Plan::checked(const cublasLtMatmulAlgo_t& algo, std::size_t workspace) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(handle_, &operation_, &a_, &b_, &d_, &d_, &algo, &result);
  if (status != CUBLAS_STATUS_SUCCESS || result.state != CUBLAS_STATUS_SUCCESS ||
      result.workspaceSize > workspace || !allows(algo)) {
    return std::nullopt;
  }
  return Algorithm{algo, result.workspaceSize};
}

cublasStatus_t Plan::launch(const Algorithm& algorithm, const Operands& operands, void* workspace,
                            cudaStream_t stream) {
  if (has_bias(product_.epilogue)) {
    set(&operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, operands.bias);
  }
  if (has_aux(product_.epilogue)) {
    set(&operation_, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, operands.aux);
  }
  if (product_.format_a) {
    set(&operation_, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.scale_a);
    set(&operation_, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.scale_b);
  }
  const float alpha = 1;
  const float beta = product_.adds && !operands.c_is_zero ? 1 : 0;
  return cublasLtMatmul(handle_, &operation_, &alpha, operands.a, &a_, operands.b, &b_, &beta,
                        product_.adds ? operands.c : operands.d, &d_, operands.d, &d_,
                        &algorithm.algo, workspace, algorithm.workspace, stream);
}

}  // namespace lockstep::cuda
