// The kernels of compression, as functions that queue them on a stream. The codecs and formats are
// those of the CPU (parallel/compression/); each function says which one it does.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "lockstep/parallel/compression/cuda_module.h"
#include "lockstep/tensor/dtype.h"

namespace lockstep::cuda {

// What kernels share on the device.
struct CodecWords {
  unsigned long long fault;  // the least fault of a payload that was decoded, or kNoCodecFault
  double squares;            // of the gradients of this step so far
  float clip;                // the factor for the gradients that come next
  unsigned non_finite;       // whether the last randomk payload was made or found without numbers
};
static_assert(sizeof(CodecWords) <= kCodecWordBytes);

// What is wrong with a payload, and where.
enum class CodecFault : unsigned {
  kExponent,  // f16: of this block
  kCount,     // topk: of this segment, and so on
  kPosition,
  kOrder,
  kEnd,
};
inline constexpr unsigned long long kNoCodecFault = ~0ull;
constexpr unsigned long long codec_fault(CodecFault what, std::size_t where) {
  return static_cast<unsigned long long>(where) << 8 | static_cast<unsigned>(what);
}

// Elements of f32, bf16 or f16.
struct CodecElements {
  void* data;
  std::size_t count;
  DType dtype;
};

// ---- blocks (parallel/compression/kernels/formats.inl)

enum class BlockFormat { kBf16, kF16, kInt8, kInt4, kOnebit };

// The residual may be null.
void encode_blocks(BlockFormat format, CodecElements values, float* residual, std::byte* payload,
                   cudaStream_t stream);
// `add`: only to f32.
void decode_blocks(BlockFormat format, const std::byte* payload, CodecElements out, bool add,
                   CodecWords* words, cudaStream_t stream);
// out = the sum of `count` payloads of `each` bytes; instead of payload `own`, own_part.
void sum_blocks(BlockFormat format, const std::byte* payloads, std::size_t count, std::size_t each,
                std::size_t own, const void* own_part, CodecElements out, CodecWords* words,
                cudaStream_t stream);

// ---- elements

void convert_elements(CodecElements from, CodecElements to, cudaStream_t stream);
void scale_elements(float* values, float factor, std::size_t count, cudaStream_t stream);
void clear_bytes(void* data, std::size_t bytes, cudaStream_t stream);
// Where words->non_finite is set: elements that are not finite become 0.
void clear_non_finite(float* values, std::size_t count, const unsigned* non_finite,
                      cudaStream_t stream);
// averages = keep * averages + take * words->clip * values.
void average_elements(const float* values, float* averages, float keep, float take,
                      std::size_t count, const CodecWords* words, cudaStream_t stream);
// words->clip by the norm of all gradients since the one that was `first`; 1 with a limit of 0.
// `partials` are kCodecPartials f64.
void clip_elements(const float* gradients, std::size_t count, double limit, bool first,
                   CodecWords* words, double* partials, cudaStream_t stream);

// ---- topk and randomk

void encode_topk(const float* values, float* residual, std::size_t count, std::size_t kept,
                 std::byte* payload, std::byte* scratch, cudaStream_t stream);
void decode_topk(const std::byte* payload, float* out, std::size_t count, std::size_t kept,
                 bool add, CodecWords* words, cudaStream_t stream);
void clear_sent_topk(const std::byte* payload, float* values, std::size_t count, std::size_t kept,
                     CodecWords* words, cudaStream_t stream);

void encode_randomk(const float* values, float* residual, std::size_t count, std::size_t kept,
                    std::byte* payload, std::uint64_t seed, CodecWords* words, cudaStream_t stream);
void decode_randomk(const std::byte* payload, float* out, std::size_t count, std::size_t kept,
                    bool add, std::uint64_t seed, cudaStream_t stream);
void clear_sent_randomk(const std::byte* payload, float* values, std::size_t count,
                        std::size_t kept, std::uint64_t seed, CodecWords* words,
                        cudaStream_t stream);

// Loads all of them, which could not happen while a kernel of another rank of this process waits
// for this one.
void load_block_kernels();
void load_element_kernels();
void load_sparse_kernels();

}  // namespace lockstep::cuda
