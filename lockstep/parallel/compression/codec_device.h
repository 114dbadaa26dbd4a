// A CodecDevice computes on compressed data where it lies: it makes the codecs of its device, and
// has the other loops of a compressed exchange.
//
//   device.run([&] {
//     device.widen(gradients, floats);
//     codec->encode(floats, residual, payload, scratch, seed);
//   });
//
// All functions but run() are called in a task of run(). They take memory of the device: spans and
// Data are then addresses there, which the host does not read.
//
// On a GPU run() begins after all operations that are queued there (as a collective does), queues
// the task's work on a stream of its own, and returns when it is done. So what follows, a
// collective or a copy, finds it complete. Nothing is allocated. A payload that is invalid is an
// Error(kProtocol) of run(), which comes after the kernel has skipped what is invalid. On the CPU a
// task is simply called, and errors come before anything is written.
//
// The CPU is the oracle: a GPU makes the same payloads, residuals and results, bit for bit, with
// two exceptions. The bits of a NaN may differ. The sum of squares by which a worker clips its
// gradients (own_momentum.h) is added in another order, so that a factor may differ in a last bit.
//
// One thread at a time may use an object; codecs belong to it.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "lockstep/comm/call.h"
#include "lockstep/parallel/compression/codec.h"
#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/tensor/device.h"

namespace lockstep::parallel {

// Payloads of the same part from several workers, one after another, and one of them as it was
// before it was encoded.
struct PartSum {
  std::span<const std::byte> payloads;
  std::size_t own = 0;  // the payload that own_part replaces
  ConstData own_part;
  Data out;  // the sum in this order, in f32, rounded once
};

class CodecDevice {
 public:
  virtual ~CodecDevice() = default;
  CodecDevice() = default;
  CodecDevice(const CodecDevice&) = delete;
  CodecDevice& operator=(const CodecDevice&) = delete;

  virtual Device device() const = 0;
  virtual void run(const std::function<void()>& task) = 0;

  // As parallel::make_codec(). On a GPU scratch_bytes() is another: codec_scratch_bytes(). May be
  // called outside of tasks.
  virtual std::unique_ptr<Codec> make_codec(const CompressionOptions& options) = 0;

  // See convert.h.
  virtual void widen(ConstData from, std::span<float> out) = 0;
  virtual void narrow(std::span<const float> values, Data to) = 0;
  virtual void convert(ConstData from, Data to) = 0;

  // averages = momentum.keep * averages + momentum.take * clipped gradients.
  virtual void average(std::span<const float> gradients, std::span<float> averages,
                       const OwnMomentum& momentum) = 0;
  virtual void scale(std::span<float> values, float factor) = 0;
  virtual void clear(std::span<float> values) = 0;

  // Parts of f32, bf16 or f16 as payloads of a codec of blocks, and back. No part is ever in f32 as
  // a whole.
  virtual void encode_part(Compression format, ConstData part, std::span<std::byte> payload) = 0;
  virtual void decode_part(Compression format, std::span<const std::byte> payload, Data part) = 0;
  virtual void sum_parts(Compression format, const PartSum& sum) = 0;
};

// Throws Error(kUnsupported) where there is no such device.
std::unique_ptr<CodecDevice> make_codec_device(Device device);
// Of the CPU. Has no state; any number of threads may use it.
CodecDevice& cpu_codec_device();

// The workspace of encode() by such a codec of a device.
std::size_t codec_scratch_bytes(const CompressionOptions& options, std::size_t elements,
                                Device device);
// The memory of a CodecDevice on its device.
std::size_t codec_device_bytes(Device device);

}  // namespace lockstep::parallel
