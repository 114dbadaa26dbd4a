#include "lockstep/parallel/server/wire/slice_codec.h"

#include <algorithm>

#include "lockstep/parallel/compression/codec_device.h"
#include "lockstep/parallel/compression/convert.h"
#include "lockstep/parallel/compression/own_momentum.h"

namespace lockstep::parallel {
namespace {

// How large each part is.
struct CodecSizes {
  std::vector<std::size_t> offset;  // of payloads, by slice
  std::size_t payloads = 0;         // bytes, as the next
  std::size_t values = 0;
  std::size_t scratch = 0;
  std::size_t residual = 0;
  std::size_t velocity = 0;

  CodecSizes(const ServedLayout& layout, const WireFormat& format) {
    for (const Slice& slice : layout.slices) {
      const std::size_t elements = slice.range.elements;
      std::size_t payload = 0;
      if (format.parameters() != nullptr) payload = format.pulled_bytes(elements);
      if (format.gradients() != nullptr) {
        payload = std::max(payload, format.pushed_bytes(elements));
        scratch = std::max(scratch, format.gradients()->scratch_bytes(elements));
      }
      offset.push_back(payloads);
      payloads += payload;
      if (format.has_residual()) residual += elements * sizeof(float);
    }
    if (takes_own_momentum(layout.compression.compression)) velocity = residual;
    if (format.gradients() != nullptr && layout.gradient != DType::kF32) {
      values = largest_slice(layout.slices) * sizeof(float);
    }
  }
};

std::span<float> floats_of(const Tensor& tensor) { return tensor.as<float>(); }

}  // namespace

std::size_t SliceCodec::bytes(const ServedLayout& layout) {
  const CodecSizes sizes(layout, WireFormat(layout));
  return sizes.payloads + sizes.values + sizes.scratch + sizes.residual + sizes.velocity;
}

SliceCodec::SliceCodec(const ServedLayout& layout) : layout_(layout), format_(layout) {
  CodecSizes sizes(layout, format_);
  offset_ = std::move(sizes.offset);
  payloads_ = Buffer(sizes.payloads);
  values_ = Buffer(sizes.values);
  scratch_ = Buffer(sizes.scratch);
  residual_ = Buffer(sizes.residual);
  velocity_ = Buffer(sizes.velocity);
  std::ranges::fill(residual(), 0.0f);
  std::ranges::fill(velocity(), 0.0f);
}

std::span<std::byte> SliceCodec::payload(std::size_t slice, std::size_t bytes) const {
  return {payloads_.data() + offset_[slice], bytes};
}

std::span<const std::byte> SliceCodec::encode(std::size_t slice, const Tensor& gradients,
                                              std::int64_t step) {
  if (format_.gradients() == nullptr) return {gradients.data(), gradients.bytes()};
  const nn::FlatRange range = layout_.slices[slice].range;
  std::span<float> values;
  if (gradients.dtype() == DType::kF32) {
    values = floats_of(gradients);
  } else {
    values = {reinterpret_cast<float*>(values_.data()), range.elements};
    widen({gradients.data(), range.elements, gradients.dtype()}, values);
  }
  const auto part = [&](std::span<float> buffer) {
    return buffer.empty() ? buffer : buffer.subspan(range.first, range.elements);
  };
  const std::span<std::byte> to = payload(slice, format_.pushed_bytes(range.elements));
  encode_own(cpu_codec_device(), *format_.gradients(), own_momentum(layout_.optimizer), values,
             {part(residual()), part(velocity())}, to, {scratch_.data(), scratch_.bytes()},
             WireFormat::seed(step, slice));
  return to;
}

std::span<std::byte> SliceCodec::receiving(std::size_t slice, const Tensor& parameters) const {
  if (format_.parameters() == nullptr) return {parameters.data(), parameters.bytes()};
  return payload(slice, format_.pulled_bytes(parameters.elements()));
}

void SliceCodec::landed(std::size_t slice, const Tensor& parameters) const {
  if (format_.parameters() == nullptr) return;
  format_.parameters()->decode(receiving(slice, parameters), floats_of(parameters), 0);
}

void SliceCodec::round(std::size_t slice, const Tensor& parameters) {
  if (format_.parameters() == nullptr) return;
  format_.parameters()->encode(floats_of(parameters), {}, receiving(slice, parameters),
                               {scratch_.data(), scratch_.bytes()}, 0);
  landed(slice, parameters);
}

}  // namespace lockstep::parallel
