#include "lockstep/parallel/compression/cuda/codec_device.h"

#include <cstring>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/compression/dense_codecs.h"
#include "lockstep/parallel/compression/sparse.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/copy.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

using parallel::Codec;
using parallel::Compression;

BlockFormat block_format(Compression compression) {
  switch (compression) {
    case Compression::kBf16:
      return BlockFormat::kBf16;
    case Compression::kF16:
      return BlockFormat::kF16;
    case Compression::kInt8:
      return BlockFormat::kInt8;
    case Compression::kInt4:
      return BlockFormat::kInt4;
    case Compression::kOnebit:
      return BlockFormat::kOnebit;
    default:
      fail(ErrorCode::kInvalidArgument, "{} is not a block format", parallel::name(compression));
  }
}

CodecElements elements_of(const ConstData& data) {
  if (!parallel::is_gradient_type(data.dtype)) {
    fail(ErrorCode::kInvalidArgument, "gradients of {} cannot be compressed", name(data.dtype));
  }
  return {const_cast<std::byte*>(data.bytes), data.count, data.dtype};
}
CodecElements of_floats(std::span<const float> values) {
  return {const_cast<float*>(values.data()), values.size(), DType::kF32};
}

void check_counts(std::size_t one, std::size_t other) {
  if (one == other) return;
  fail(ErrorCode::kInvalidArgument, "{} elements cannot become {}", one, other);
}

// Sizes, errors and the meaning of payloads are those of the CPU's codec, its twin. "none" has no
// kernels: what is not compressed is all-reduced as it is.
class CudaCodec final : public Codec {
 public:
  CudaCodec(CudaCodecDevice& device, const parallel::CompressionOptions& options)
      : device_(device), options_(options), twin_(parallel::make_codec(options)) {}

  std::string_view name() const override { return twin_->name(); }
  std::size_t bytes(std::size_t elements) const override { return twin_->bytes(elements); }
  std::size_t scratch_bytes(std::size_t elements) const override {
    return parallel::codec_scratch_bytes(options_, elements, device_.device());
  }
  bool needs_residual() const override { return twin_->needs_residual(); }

 private:
  std::size_t kept(std::size_t elements) const {
    parallel::check_positions(elements, name());
    return parallel::kept_elements(elements, options_.ratio);
  }

  void encode_checked(std::span<const float> values, float* residual, std::byte* payload,
                      std::byte* scratch, std::uint64_t seed) const override {
    const std::size_t count = values.size();
    const cudaStream_t stream = device_.stream();
    switch (options_.compression) {
      case Compression::kTopk:
        return encode_topk(values.data(), residual, count, kept(count), payload, scratch, stream);
      case Compression::kRandomk:
        return encode_randomk(values.data(), residual, count, kept(count), payload, seed,
                              device_.words(), stream);
      default:
        encode_blocks(block_format(options_.compression), of_floats(values), residual, payload,
                      stream);
    }
  }

  void decode_checked(const std::byte* payload, std::span<float> out, bool add,
                      std::uint64_t seed) const override {
    const std::size_t count = out.size();
    const cudaStream_t stream = device_.stream();
    switch (options_.compression) {
      case Compression::kTopk:
        device_.expect_faults(options_.compression);
        return decode_topk(payload, out.data(), count, kept(count), add, device_.words(), stream);
      case Compression::kRandomk:
        return decode_randomk(payload, out.data(), count, kept(count), add, seed, stream);
      case Compression::kF16:
        device_.expect_faults(options_.compression);
        [[fallthrough]];
      default:
        decode_blocks(block_format(options_.compression), payload, of_floats(out), add,
                      device_.words(), stream);
    }
  }

  void clear_sent_checked(const std::byte* payload, std::span<float> values,
                          std::uint64_t seed) const override {
    const std::size_t count = values.size();
    const cudaStream_t stream = device_.stream();
    switch (options_.compression) {
      case Compression::kTopk:
        device_.expect_faults(options_.compression);
        return clear_sent_topk(payload, values.data(), count, kept(count), device_.words(), stream);
      case Compression::kRandomk:
        return clear_sent_randomk(payload, values.data(), count, kept(count), seed, device_.words(),
                                  stream);
      default:
        clear_bytes(values.data(), values.size_bytes(), stream);
    }
  }

  CudaCodecDevice& device_;
  parallel::CompressionOptions options_;
  std::unique_ptr<Codec> twin_;
};

std::string_view why_invalid(CodecFault fault) {
  switch (fault) {
    case CodecFault::kExponent:
      return "has an exponent that is not valid";
    case CodecFault::kCount:
      return "has more elements than are left";
    case CodecFault::kPosition:
      return "has a position outside of it";
    case CodecFault::kOrder:
      return "has positions that do not rise";
    case CodecFault::kEnd:
      return "ends before the last element";
  }
  return "is not valid";
}

}  // namespace

CudaCodecDevice::CudaCodecDevice(int index)
    : index_(index),
      memory_(kCodecDeviceBytes, Device{DeviceKind::kCuda, index}),
      fetched_(sizeof(unsigned long long)) {
  use_device(index);
  load_copies();
  load_block_kernels();
  load_element_kernels();
  load_sparse_kernels();
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  CodecWords words{};
  words.fault = kNoCodecFault;
  words.clip = 1;
  check(cudaMemcpyAsync(memory_.data(), &words, sizeof(words), cudaMemcpyHostToDevice, stream_),
        "preparing compression");
  check(cudaStreamSynchronize(stream_), "preparing compression");
}

CudaCodecDevice::~CudaCodecDevice() {
  use_device(index_);
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void CudaCodecDevice::run(const std::function<void()>& task) {
  use_device(index_);
  OperationStream::let_wait(index_, stream_);
  faulty_ = Compression::kNone;
  try {
    const CurrentStream current(stream_, this);
    task();
  } catch (...) {
    cudaStreamSynchronize(stream_);  // payloads may be freed now
    throw;
  }
  const bool may_be_invalid = faulty_ != Compression::kNone;
  if (may_be_invalid) {
    check(cudaMemcpyAsync(fetched_.data(), &words()->fault, sizeof(unsigned long long),
                          cudaMemcpyDeviceToHost, stream_),
          "fetching what is wrong with payloads");
  }
  check(cudaStreamSynchronize(stream_), "compression on the GPU");
  if (may_be_invalid) throw_fault();
}

void CudaCodecDevice::throw_fault() const {
  unsigned long long fault = kNoCodecFault;
  std::memcpy(&fault, fetched_.data(), sizeof(fault));
  if (fault == kNoCodecFault) return;
  const auto what = static_cast<CodecFault>(fault & 255);
  fail(ErrorCode::kProtocol,
       "{}: {} {} of a payload {}; it was damaged on its way, or something else wrote it",
       parallel::name(faulty_), what == CodecFault::kExponent ? "block" : "segment", fault >> 8,
       why_invalid(what));
}

std::unique_ptr<Codec> CudaCodecDevice::make_codec(const parallel::CompressionOptions& options) {
  return std::make_unique<CudaCodec>(*this, options);
}

void CudaCodecDevice::widen(ConstData from, std::span<float> out) {
  check_counts(from.count, out.size());
  convert_elements(elements_of(from), of_floats(out), stream_);
}

void CudaCodecDevice::narrow(std::span<const float> values, Data to) {
  check_counts(values.size(), to.count);
  convert_elements(of_floats(values), elements_of(to), stream_);
}

void CudaCodecDevice::convert(ConstData from, Data to) {
  check_counts(from.count, to.count);
  convert_elements(elements_of(from), elements_of(to), stream_);
}

void CudaCodecDevice::average(std::span<const float> gradients, std::span<float> averages,
                              const parallel::OwnMomentum& momentum) {
  check_counts(gradients.size(), averages.size());
  const double limit = momentum.clip != nullptr ? momentum.clip->limit() : 0;
  const bool first = momentum.clip != nullptr && momentum.clip->take_beginning();
  clip_elements(gradients.data(), gradients.size(), limit, first, words(),
                reinterpret_cast<double*>(memory_.data() + kCodecWordBytes), stream_);
  average_elements(gradients.data(), averages.data(), momentum.keep, momentum.take,
                   gradients.size(), words(), stream_);
}

void CudaCodecDevice::scale(std::span<float> values, float factor) {
  scale_elements(values.data(), factor, values.size(), stream_);
}

void CudaCodecDevice::clear(std::span<float> values) {
  clear_bytes(values.data(), values.size_bytes(), stream_);
}

void CudaCodecDevice::encode_part(Compression format, ConstData part,
                                  std::span<std::byte> payload) {
  encode_blocks(block_format(format), elements_of(part), nullptr, payload.data(), stream_);
}

void CudaCodecDevice::decode_part(Compression format, std::span<const std::byte> payload,
                                  Data part) {
  decode_blocks(block_format(format), payload.data(), elements_of(part), false, words(), stream_);
}

void CudaCodecDevice::sum_parts(Compression format, const parallel::PartSum& sum) {
  const std::size_t each = parallel::BlockCodec(format).bytes(sum.out.count);
  if (each == 0) return;
  sum_blocks(block_format(format), sum.payloads.data(), sum.payloads.size() / each, each, sum.own,
             sum.own_part.bytes, elements_of(sum.out), words(), stream_);
}

}  // namespace lockstep::cuda

extern "C" lockstep::parallel::CodecDevice* lockstep_cuda_codec_device(int index) {
  return new lockstep::cuda::CudaCodecDevice(index);
}
