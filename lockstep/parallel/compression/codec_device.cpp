#include "lockstep/parallel/compression/codec_device.h"

#include <algorithm>
#include <array>

#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/compression/cuda_module.h"
#include "lockstep/parallel/compression/dense_codecs.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep::parallel {
namespace {

// Elements per chunk of a part, to stay in the cache. A multiple of the codec's blocks, so that
// payloads of chunks are contiguous in the payload.
constexpr std::size_t kPiece = 32 * kBlock;
using Floats = std::array<float, kPiece>;

template <class T>
T piece_of(const T& data, std::size_t first, std::size_t count) {
  return {data.bytes + first * size_of(data.dtype), count, data.dtype};
}

template <class Body>
void for_pieces(std::size_t elements, Body&& body) {
  for (std::size_t first = 0; first < elements; first += kPiece) {
    body(first, std::min(kPiece, elements - first));
  }
}

class CpuCodecDevice final : public CodecDevice {
 public:
  Device device() const override { return {}; }
  void run(const std::function<void()>& task) override { task(); }
  std::unique_ptr<Codec> make_codec(const CompressionOptions& options) override {
    return parallel::make_codec(options);
  }

  void widen(ConstData from, std::span<float> out) override { parallel::widen(from, out); }
  void narrow(std::span<const float> values, Data to) override { parallel::narrow(values, to); }
  void convert(ConstData from, Data to) override { parallel::convert(from, to); }

  void average(std::span<const float> gradients, std::span<float> averages,
               const OwnMomentum& momentum) override {
    const float clipped = momentum.clip != nullptr ? momentum.clip->factor(gradients) : 1;
    compression_kernels().average(gradients.data(), averages.data(), momentum.keep,
                                  momentum.take * clipped, gradients.size());
  }
  void scale(std::span<float> values, float factor) override {
    for (float& x : values) x *= factor;
  }
  void clear(std::span<float> values) override { std::ranges::fill(values, 0.0f); }

  void encode_part(Compression format, ConstData part, std::span<std::byte> payload) override {
    const BlockCodec codec(format);
    Floats workspace;
    for_pieces(part.count, [&](std::size_t first, std::size_t count) {
      const std::span<float> floats = std::span(workspace).first(count);
      parallel::widen(piece_of(part, first, count), floats);
      codec.encode(floats, {}, payload.subspan(codec.bytes(first), codec.bytes(count)), {}, 0);
    });
  }

  void decode_part(Compression format, std::span<const std::byte> payload, Data part) override {
    const BlockCodec codec(format);
    Floats workspace;
    for_pieces(part.count, [&](std::size_t first, std::size_t count) {
      const std::span<float> floats = std::span(workspace).first(count);
      codec.decode(payload.subspan(codec.bytes(first), codec.bytes(count)), floats, 0);
      parallel::narrow(floats, piece_of(part, first, count));
    });
  }

  void sum_parts(Compression format, const PartSum& sum) override {
    const BlockCodec codec(format);
    const std::size_t each = codec.bytes(sum.out.count);
    Floats workspace;
    Floats more;
    for_pieces(sum.out.count, [&](std::size_t first, std::size_t count) {
      const std::span<float> sums = std::span(workspace).first(count);
      std::ranges::fill(sums, 0.0f);
      for (std::size_t i = 0; i * each < sum.payloads.size(); ++i) {
        const std::span<float> floats = std::span(more).first(count);
        if (i == sum.own) {
          parallel::widen(piece_of(sum.own_part, first, count), floats);
        } else {
          codec.decode(sum.payloads.subspan(i * each + codec.bytes(first), codec.bytes(count)),
                       floats, 0);
        }
        for (std::size_t k = 0; k < count; ++k) sums[k] += floats[k];
      }
      parallel::narrow(sums, piece_of(sum.out, first, count));
    });
  }
};

}  // namespace

CodecDevice& cpu_codec_device() {
  static CpuCodecDevice made;
  return made;
}

std::unique_ptr<CodecDevice> make_codec_device(Device device) {
  if (device == Device{}) return std::make_unique<CpuCodecDevice>();
  cuda::module_for(device.index);  // throws where it cannot be used
  auto* const factory =
      cuda::module().function<cuda::CodecDeviceFunction>(cuda::kCodecDeviceSymbol);
  return std::unique_ptr<CodecDevice>(factory(device.index));
}

std::size_t codec_scratch_bytes(const CompressionOptions& options, std::size_t elements,
                                Device device) {
  if (device == Device{}) return make_codec(options)->scratch_bytes(elements);
  return options.compression == Compression::kTopk ? cuda::topk_scratch_bytes(elements) : 0;
}

std::size_t codec_device_bytes(Device device) {
  return device == Device{} ? 0 : cuda::kCodecDeviceBytes;
}

}  // namespace lockstep::parallel
