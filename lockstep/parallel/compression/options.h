// The settings of gradient compression.
//
// Keys are `parallel.compression` and `parallel.compression_ratio`; base/config/config.h says how
// they are read. See docs/data-parallel.md for the cost of each codec and when to use it.
#pragma once

#include <cstdint>
#include <string_view>

#include "lockstep/base/config/config.h"

namespace lockstep::parallel {

enum class Compression : std::uint8_t {
  kNone,
  kBf16,
  kF16,
  kInt8,
  kInt4,
  kOnebit,
  kTopk,
  kRandomk
};

inline constexpr Compression kAllCompressions[] = {
    Compression::kNone, Compression::kBf16,   Compression::kF16,  Compression::kInt8,
    Compression::kInt4, Compression::kOnebit, Compression::kTopk, Compression::kRandomk};

std::string_view name(Compression compression);  // "none", "bf16", ...

struct CompressionOptions {
  Compression compression = Compression::kNone;
  double ratio = 0.01;  // the fraction of elements that topk and randomk send
};

// Declares the keys of CompressionOptions; `options` must outlive `config` and stay in place.
void bind(Config& config, CompressionOptions& options);

}  // namespace lockstep::parallel
