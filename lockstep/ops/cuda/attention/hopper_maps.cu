#include "lockstep/ops/cuda/attention/hopper_maps.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>

#include <limits>

#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda::hopper {
namespace {

// The driver's function, found through the runtime so that nothing links the driver.
PFN_cuTensorMapEncodeTiled_v12000 find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "look for the driver's tensor maps");
  if (found != cudaDriverEntryPointSuccess) {
    check(cudaErrorNotSupported, "look for the driver's tensor maps");
  }
  return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
}

std::int64_t width(const Tensor& rows) { return rows.shape().extents().back(); }

std::byte* first_element(const ops::Heads& heads) {
  return heads.rows.data() + static_cast<std::size_t>(heads.first) * size_of(heads.rows.dtype());
}

}  // namespace

CUtensorMap make_map(const ops::Heads& heads, const HeadsMap& layout) {
  static const PFN_cuTensorMapEncodeTiled_v12000 encode = find_encoder();
  const auto size = static_cast<cuuint64_t>(size_of(heads.rows.dtype()));
  const auto row = static_cast<cuuint64_t>(width(heads.rows)) * size;
  const cuuint64_t extents[] = {
      static_cast<cuuint64_t>(layout.head_size), static_cast<cuuint64_t>(layout.heads),
      static_cast<cuuint64_t>(layout.sequence), static_cast<cuuint64_t>(layout.batch)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(layout.head_size) * size, row,
                                static_cast<cuuint64_t>(layout.sequence) * row};
  const cuuint32_t box[] = {64, 1, static_cast<cuuint32_t>(layout.box_rows), 1};
  const cuuint32_t steps[] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map,
             heads.rows.dtype() == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
             4, first_element(heads), extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) check(cudaErrorInvalidValue, "describe heads of attention");
  return map;
}

bool is_mappable(const ops::Heads& heads) {
  return reinterpret_cast<std::uintptr_t>(first_element(heads)) % 16 == 0 &&
         width(heads.rows) * static_cast<std::int64_t>(size_of(heads.rows.dtype())) % 16 == 0;
}

bool is_supported(const Context& context, const ops::AttentionShape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max() / 2;
  return context.capability == 90 && (shape.dtype == DType::kBF16 || shape.dtype == DType::kF16) &&
         (shape.head_size == 64 || shape.head_size == 128) && shape.batch > 0 &&
         shape.queries > 0 && shape.keys > 0 && shape.heads > 0 && shape.kv_heads > 0 &&
         shape.queries < kMost && shape.keys < kMost &&
         shape.batch * shape.heads < kMost / (shape.queries / 64 + shape.keys / 64 + 2);
}

}  // namespace lockstep::cuda::hopper
