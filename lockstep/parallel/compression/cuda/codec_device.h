// The CodecDevice of a GPU: see parallel/compression/codec_device.h.
#pragma once

#include <cuda_runtime_api.h>

#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/compression/cuda/kernels.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep::cuda {

class CudaCodecDevice final : public parallel::CodecDevice {
 public:
  explicit CudaCodecDevice(int index);
  ~CudaCodecDevice() override;

  Device device() const override { return {DeviceKind::kCuda, index_}; }
  void run(const std::function<void()>& task) override;
  std::unique_ptr<parallel::Codec> make_codec(const parallel::CompressionOptions& options) override;

  void widen(ConstData from, std::span<float> out) override;
  void narrow(std::span<const float> values, Data to) override;
  void convert(ConstData from, Data to) override;
  void average(std::span<const float> gradients, std::span<float> averages,
               const parallel::OwnMomentum& momentum) override;
  void scale(std::span<float> values, float factor) override;
  void clear(std::span<float> values) override;
  void encode_part(parallel::Compression format, ConstData part,
                   std::span<std::byte> payload) override;
  void decode_part(parallel::Compression format, std::span<const std::byte> payload,
                   Data part) override;
  void sum_parts(parallel::Compression format, const parallel::PartSum& sum) override;

  // For its codecs.
  cudaStream_t stream() const { return stream_; }
  CodecWords* words() const { return reinterpret_cast<CodecWords*>(memory_.data()); }
  // What is queued may find a payload of this codec invalid.
  void expect_faults(parallel::Compression codec) { faulty_ = codec; }

 private:
  void throw_fault() const;

  int index_;
  cudaStream_t stream_ = nullptr;
  Buffer memory_;
  PinnedBuffer fetched_;  // the fault
  parallel::Compression faulty_ = parallel::Compression::kNone;
};

}  // namespace lockstep::cuda
