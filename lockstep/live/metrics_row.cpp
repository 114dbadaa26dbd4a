#include "lockstep/live/metrics_row.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace lockstep::live {
namespace {

constexpr std::array<std::string_view, kMetrics> kNames = {"step",
                                                           "loss",
                                                           "val_loss",
                                                           "lr",
                                                           "grad_norm",
                                                           "tokens",
                                                           "tokens_per_s",
                                                           "step_ms",
                                                           "data_ms",
                                                           "checkpoint_ms",
                                                           "checkpoint_background_ms",
                                                           "validation_ms",
                                                           "memory_bytes",
                                                           "file_read_bytes",
                                                           "file_written_bytes",
                                                           "file_wait_ms",
                                                           "compute_ms",
                                                           "communication_ms",
                                                           "exposed_ms",
                                                           "exposed_max_ms",
                                                           "bytes_sent",
                                                           "bytes_across",
                                                           "staleness",
                                                           "staleness_max",
                                                           "slowest_rank",
                                                           "slowest_ms",
                                                           "loss_scale",
                                                           "skipped"};

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

MetricsRow no_values() {
  MetricsRow row;
  row.values.fill(kNone);
  return row;
}

std::optional<MetricsRow> with_step(const MetricsRow& row) {
  const double step = row[Metric::kStep];
  if (!(step >= 1) || step != std::floor(step)) return std::nullopt;
  return row;
}

// The index of a key; kMetrics: none. Keys come in one order, so the search begins at `expected`.
std::size_t index_of(std::string_view key, std::size_t expected) {
  for (std::size_t i = 0; i < kMetrics; ++i) {
    const std::size_t index = expected + i < kMetrics ? expected + i : expected + i - kMetrics;
    if (kNames[index] == key) return index;
  }
  return kMetrics;
}

// Reads what lockstep writes: a flat object of numbers, booleans and nulls, without blanks and
// escapes. Gives up for everything else, which may be JSON all the same.
class FastScan {
 public:
  explicit FastScan(std::string_view line) : at_(line.data()), end_(at_ + line.size()) {}

  bool read(MetricsRow& row) {
    if (!take('{')) return false;
    std::size_t expected = 0;
    while (true) {
      std::string_view key;
      if (!take('"') || !read_key(key) || !take(':')) return false;
      const std::size_t index = index_of(key, expected);
      double value = kNone;
      if (!read_value(value)) return false;
      if (index < kMetrics) {
        row.values[index] = value;
        expected = index + 1 < kMetrics ? index + 1 : 0;
      }
      if (take(',')) continue;
      return take('}') && at_ == end_;
    }
  }

 private:
  bool take(char wanted) {
    if (at_ == end_ || *at_ != wanted) return false;
    ++at_;
    return true;
  }

  bool take(std::string_view word) {
    if (!std::string_view(at_, static_cast<std::size_t>(end_ - at_)).starts_with(word))
      return false;
    at_ += word.size();
    return true;
  }

  bool read_key(std::string_view& key) {
    const char* begin = at_;
    while (at_ != end_ && (*at_ == '_' || (*at_ >= 'a' && *at_ <= 'z'))) ++at_;
    key = {begin, static_cast<std::size_t>(at_ - begin)};
    return take('"');
  }

  bool read_value(double& value) {
    if (at_ == end_) return false;
    if (*at_ == 'n') return take("null");
    if (*at_ == 't' || *at_ == 'f') {
      value = *at_ == 't' ? 1 : 0;
      return take(*at_ == 't' ? std::string_view("true") : std::string_view("false"));
    }
    // JSON has no point without digits on both sides, no zero before other digits, and no "inf".
    const char* digits = *at_ == '-' ? at_ + 1 : at_;
    if (digits == end_ || *digits < '0' || *digits > '9') return false;
    if (*digits == '0' && digits + 1 != end_ && digits[1] >= '0' && digits[1] <= '9') return false;
    const auto [after, error] = std::from_chars(at_, end_, value);
    if (error != std::errc()) return false;
    const char* point = std::find(at_, after, '.');
    if (point != after && (point + 1 == after || point[1] < '0' || point[1] > '9')) return false;
    at_ = after;
    return true;
  }

  const char* at_;
  const char* end_;
};

std::optional<MetricsRow> parse_any_row(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  MetricsRow row = no_values();
  for (std::size_t i = 0; i < kMetrics; ++i) {
    const auto found = json.find(kNames[i]);
    if (found == json.end()) continue;
    if (found->is_number()) row.values[i] = found->get<double>();
    if (found->is_boolean()) row.values[i] = found->get<bool>() ? 1 : 0;
  }
  return with_step(row);
}

}  // namespace

std::string_view name(Metric metric) { return kNames[static_cast<std::size_t>(metric)]; }

std::optional<MetricsRow> parse_metrics_row(std::string_view line) {
  MetricsRow row = no_values();
  if (FastScan(line).read(row)) return with_step(row);
  return parse_any_row(line);
}

}  // namespace lockstep::live
