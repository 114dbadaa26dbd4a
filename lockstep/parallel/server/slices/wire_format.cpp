#include "lockstep/parallel/server/slices/wire_format.h"

#include <optional>

#include "lockstep/base/math/counter_rng.h"

namespace lockstep::parallel {
namespace {

// The type that a codec of 16 bits rounds to.
std::optional<DType> rounded_type(Compression compression) {
  if (compression == Compression::kBf16) return DType::kBF16;
  if (compression == Compression::kF16) return DType::kF16;
  return std::nullopt;
}

}  // namespace

WireFormat::WireFormat(const ServedLayout& layout)
    : gradient_(layout.gradient), parameter_(layout.parameter) {
  const CompressionOptions& options = layout.compression;
  if (options.compression == Compression::kNone) return;
  const std::optional<DType> rounded = rounded_type(options.compression);
  if (rounded != gradient_) gradients_ = make_codec(options);
  if (rounded && parameter_ == DType::kF32) parameters_ = make_codec(options);
}

std::size_t WireFormat::pushed_bytes(std::size_t elements) const {
  return gradients_ ? gradients_->bytes(elements) : elements * size_of(gradient_);
}

std::size_t WireFormat::pulled_bytes(std::size_t elements) const {
  return parameters_ ? parameters_->bytes(elements) : elements * size_of(parameter_);
}

std::uint64_t WireFormat::seed(std::int64_t step, std::size_t slice) {
  return random_word(static_cast<std::uint64_t>(step), 0, slice);
}

}  // namespace lockstep::parallel
