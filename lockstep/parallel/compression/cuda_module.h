// The CodecDevices that liblockstep_cuda.so exports; tensor/cuda_module.h has the rest of its
// interface.
#pragma once

#include <cstddef>

namespace lockstep::parallel {
class CodecDevice;
}

namespace lockstep::cuda {

// extern "C" in the module. The result belongs to the caller; it throws Error.
inline constexpr char kCodecDeviceSymbol[] = "lockstep_cuda_codec_device";
using CodecDeviceFunction = parallel::CodecDevice*(int index);

// A CodecDevice's own memory on a GPU: words that kernels share, and sums of blocks of threads.
inline constexpr std::size_t kCodecPartials = 1024;  // f64
inline constexpr std::size_t kCodecWordBytes = 256;
inline constexpr std::size_t kCodecDeviceBytes = kCodecWordBytes + kCodecPartials * sizeof(double);

// topk on a GPU looks at tiles of this many elements, which divide its segments. The workspace of
// an encoding: counts of a digit, the state of the search, two counts for each tile.
inline constexpr std::size_t kTopkTile = 4096;
inline constexpr std::size_t kTopkDigits = 2048;
inline constexpr std::size_t kTopkStateWords = 8;
constexpr std::size_t topk_tiles(std::size_t elements) {
  return (elements + kTopkTile - 1) / kTopkTile;
}
constexpr std::size_t topk_scratch_bytes(std::size_t elements) {
  return (kTopkDigits + kTopkStateWords + 2 * topk_tiles(elements)) * 4;
}

}  // namespace lockstep::cuda
