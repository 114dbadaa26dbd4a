#include "lockstep/parallel/compression/options.h"

namespace lockstep::parallel {
namespace {

constexpr std::string_view kCompressionNames[] = {"none", "bf16",   "f16",  "int8",
                                                  "int4", "onebit", "topk", "randomk"};
constexpr ValueRange<double> kRatioRange{.min = 1e-6, .max = 1};

}  // namespace

std::string_view name(Compression compression) {
  return kCompressionNames[static_cast<std::size_t>(compression)];
}

void bind(Config& config, CompressionOptions& options) {
  config.bind(
      "parallel.compression", options.compression, kCompressionNames,
      "How gradients are written on the wire. All but none lose something; int8, int4, onebit, "
      "topk and randomk keep what they lost and send it later.");
  config.bind("parallel.compression_ratio", options.ratio,
              "The share of elements that topk and randomk send.", kRatioRange);
}

}  // namespace lockstep::parallel
