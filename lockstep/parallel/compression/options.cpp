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
  config.bind("parallel.compression", options.compression, kCompressionNames,
              "How gradients are compressed before they are sent. All but none are lossy; int8, "
              "int4, onebit, topk and randomk keep the error and send it later (error feedback).");
  config.bind("parallel.compression_ratio", options.ratio,
              "The fraction of elements that topk and randomk send.", kRatioRange);
}

}  // namespace lockstep::parallel
