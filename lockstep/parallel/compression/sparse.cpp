#include "lockstep/parallel/compression/sparse.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

std::size_t kept_elements(std::size_t elements, double ratio) {
  const double share = std::round(ratio * static_cast<double>(elements));
  const auto kept = std::max<std::size_t>(1, static_cast<std::size_t>(share));
  return std::min(elements, kept);
}

CompressionOptions options_of_sums(CompressionOptions options, std::size_t ranks) {
  constexpr std::size_t kMost = 4;
  if (options.compression != Compression::kTopk) return options;
  options.ratio = std::min(1.0, options.ratio * static_cast<double>(std::min(ranks, kMost)));
  return options;
}

double checked_ratio(double ratio, std::string_view codec) {
  if (ratio > 0 && ratio <= 1) return ratio;
  fail(ErrorCode::kInvalidArgument,
       "{}: parallel.compression_ratio is the fraction of elements to send, above 0 and at most 1; "
       "got {}",
       codec, ratio);
}

void check_positions(std::size_t elements, std::string_view codec) {
  if (elements <= std::numeric_limits<std::uint32_t>::max()) return;
  fail(ErrorCode::kUnsupported,
       "{}: a run of {} elements is too long, 2^32 - 1 is the most; use smaller buckets", codec,
       elements);
}

}  // namespace lockstep::parallel
