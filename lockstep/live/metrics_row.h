// A line of metrics.jsonl as numbers, read as fast as a run of a million steps needs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::live {

// The keys of train/observe/metrics_line.h.
enum class Metric : std::uint8_t {
  kStep,
  kLoss,
  kValidationLoss,
  kRate,
  kGradientNorm,
  kTokens,
  kTokensPerSecond,
  kStepMs,
  kDataMs,
  kCheckpointMs,
  kBackgroundMs,
  kValidationMs,
  kMemoryBytes,
  kFileReadBytes,
  kFileWrittenBytes,
  kFileWaitMs,
  kComputeMs,
  kCommunicationMs,
  kExposedMs,
  kExposedMaxMs,
  kBytesSent,
  kBytesAcross,
  kStaleness,
  kStalenessMax,
  kSlowestRank,
  kSlowestMs,
  kLossScale,
  kSkipped,  // 1: it was
};
inline constexpr std::size_t kMetrics = 28;

// "val_loss" of kValidationLoss.
std::string_view name(Metric metric);

struct MetricsRow {
  std::array<double, kMetrics> values;  // NaN: it has none, or null

  double operator[](Metric metric) const { return values[static_cast<std::size_t>(metric)]; }
  double& operator[](Metric metric) { return values[static_cast<std::size_t>(metric)]; }
  double or_zero(Metric metric) const {
    const double value = (*this)[metric];
    return value == value ? value : 0;
  }
};

// Nothing for a line that is no JSON object, and for one without a step of 1 or later. Unknown keys
// are passed over; a known one with something else than a number, true or false has no value.
std::optional<MetricsRow> parse_metrics_row(std::string_view line);

}  // namespace lockstep::live
