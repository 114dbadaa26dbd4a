#include "lockstep/live/metrics_follower.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "lockstep/train/observe/metrics_file.h"

namespace lockstep::live {
namespace {

constexpr std::array kColumns = {
    Metric::kLoss,      Metric::kRate,      Metric::kGradientNorm, Metric::kTokensPerSecond,
    Metric::kStepMs,    Metric::kDataMs,    Metric::kComputeMs,    Metric::kCommunicationMs,
    Metric::kExposedMs, Metric::kStaleness, Metric::kLossScale};
constexpr std::size_t kMostMarks = 8192;
constexpr double kFading = 10;  // seconds

void add_to(SeriesTable& steps, SeriesTable& validations, const Place& place,
            const MetricsRow& row) {
  std::array<double, kColumns.size()> values;
  std::ranges::transform(kColumns, values.begin(), [&](Metric metric) { return row[metric]; });
  steps.add(place, values.data());
  const double loss = row[Metric::kValidationLoss];
  if (std::isfinite(loss)) validations.add(place, &loss);
}

double milliseconds(const MetricsRow& row) {
  return row.or_zero(Metric::kStepMs) + row.or_zero(Metric::kDataMs) +
         row.or_zero(Metric::kCheckpointMs) + row.or_zero(Metric::kValidationMs);
}

Place after(Place place, const MetricsRow& row) {
  place.step = row[Metric::kStep];
  place.tokens += row.or_zero(Metric::kTokens);
  place.seconds += milliseconds(row) / 1000;
  return place;
}

double on(MetricsFollower::Axis axis, const Place& place) {
  switch (axis) {
    case MetricsFollower::Axis::kTokens:
      return place.tokens;
    case MetricsFollower::Axis::kSeconds:
      return place.seconds;
    default:
      return place.step;
  }
}

void add_workers(MetricsTotals& totals, const MetricsRow& row) {
  ++totals.shared_steps;
  totals.waiting_ms +=
      std::max(0.0, row.or_zero(Metric::kStepMs) - row.or_zero(Metric::kComputeMs));
  totals.communication_ms += row.or_zero(Metric::kCommunicationMs);
  totals.exposed_ms += row.or_zero(Metric::kExposedMs);
  totals.exposed_max_ms += row.or_zero(Metric::kExposedMaxMs);
  totals.bytes_sent += row.or_zero(Metric::kBytesSent);
  totals.bytes_across += row.or_zero(Metric::kBytesAcross);
  totals.staleness += row.or_zero(Metric::kStaleness);
  totals.staleness_max = std::max(totals.staleness_max, row.or_zero(Metric::kStalenessMax));
  const double slowest = row[Metric::kSlowestRank];
  constexpr double kMostRanks = 1 << 20;
  if (slowest >= 0 && slowest < kMostRanks) ++totals.slowest[static_cast<int>(slowest)];
}

}  // namespace

void MetricsTotals::add(const MetricsRow& row) {
  if (rows++ == 0) first_step = row[Metric::kStep];
  last = row;
  skipped += row.or_zero(Metric::kSkipped) != 0 ? 1 : 0;
  tokens += row.or_zero(Metric::kTokens);
  most_memory_bytes = std::max(most_memory_bytes, row.or_zero(Metric::kMemoryBytes));
  if (const double loss = row[Metric::kValidationLoss]; std::isfinite(loss)) {
    last_validation = {row[Metric::kStep], loss};
    if (!best_validation || loss < best_validation->loss) best_validation = last_validation;
  }
  step_ms += row.or_zero(Metric::kStepMs);
  data_ms += row.or_zero(Metric::kDataMs);
  checkpoint_ms += row.or_zero(Metric::kCheckpointMs);
  validation_ms += row.or_zero(Metric::kValidationMs);
  background_ms += row.or_zero(Metric::kBackgroundMs);
  const double seconds = (row.or_zero(Metric::kStepMs) + row.or_zero(Metric::kDataMs)) / 1000;
  const double kept = std::exp(-seconds / kFading);
  recent_steps = recent_steps * kept + 1;
  recent_tokens = recent_tokens * kept + row.or_zero(Metric::kTokens);
  recent_seconds = recent_seconds * kept + seconds;
  if (!std::isnan(row[Metric::kComputeMs])) add_workers(*this, row);
}

double MetricsTotals::seconds_per_step() const {
  if (rows == 0 || recent_steps == 0) return 0;
  return recent_seconds / recent_steps +
         (checkpoint_ms + validation_ms) / 1000 / static_cast<double>(rows);
}

std::vector<std::string_view> MetricsFollower::columns() {
  std::vector<std::string_view> names;
  for (const Metric metric : kColumns) names.push_back(name(metric));
  return names;
}

MetricsFollower::MetricsFollower(const std::filesystem::path& folder)
    : path_(train::metrics_path(folder)),
      tail_(path_),
      steps_(columns()),
      validations_({name(Metric::kValidationLoss)}) {}

bool MetricsFollower::poll(std::size_t most_bytes) {
  return tail_.poll(most_bytes, {.begins_again = [&] { begin_again(); },
                                 .line =
                                     [&](std::string_view line, std::uint64_t offset) {
                                       if (const auto row = parse_metrics_row(line)) {
                                         add(*row, offset);
                                       } else {
                                         ++totals_.unreadable;
                                       }
                                     }});
}

void MetricsFollower::begin_again() {
  totals_ = {};
  place_ = {};
  steps_.clear();
  validations_.clear();
  marks_.clear();
  rows_per_mark_ = 64;
}

void MetricsFollower::add(const MetricsRow& row, std::uint64_t offset) {
  const auto rows = static_cast<std::uint64_t>(totals_.rows);
  if (rows % rows_per_mark_ == 0) {
    if (marks_.size() >= kMostMarks) {
      for (std::size_t i = 0; 2 * i < marks_.size(); ++i) marks_[i] = marks_[2 * i];
      marks_.resize((marks_.size() + 1) / 2);
      rows_per_mark_ *= 2;
    }
    if (rows % rows_per_mark_ == 0) marks_.push_back({offset, rows, place_});
  }
  totals_.add(row);
  place_ = after(place_, row);
  add_to(steps_, validations_, place_, row);
}

double MetricsFollower::recorded_ms_from(double step) const {
  // Of the bucket that holds it, an equal part for each step.
  double before = 0;
  Place last;
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    const Place& end = steps_.last_place(i);
    if (end.step >= step) {
      const double steps = std::max(end.step - last.step, 1.0);
      const double share = std::clamp((step - 1 - last.step) / steps, 0.0, 1.0);
      before = last.seconds + share * (end.seconds - last.seconds);
      return totals_.recorded_ms() - before * 1000;
    }
    last = end;
  }
  return 0;
}

MetricsFollower::Part MetricsFollower::part(Axis axis, double from, double to) const {
  Part part{.path = path_, .inode = tail_.inode(), .axis = axis, .from = from, .to = to};
  if (marks_.empty()) return part;
  const auto place_of = [axis](const Mark& mark) { return on(axis, mark.before); };
  // The last mark whose rows begin before `from`; all of its rows may be needed.
  auto first = std::ranges::lower_bound(marks_, from, {}, place_of);
  if (first != marks_.begin()) --first;
  const auto last = std::ranges::upper_bound(first, marks_.end(), to, {}, place_of);
  const std::uint64_t end =
      last == marks_.end() ? static_cast<std::uint64_t>(totals_.rows) : last->row;
  part.offset = first->offset;
  part.before = first->before;
  part.rows = end - first->row;
  return part;
}

std::optional<MetricsFollower::Part::Tables> MetricsFollower::Part::read(std::size_t points) const {
  const std::uint64_t buckets = std::max<std::size_t>(points, 1);
  const std::uint64_t each = (rows + buckets - 1) / buckets;
  Tables tables{SeriesTable::with_buckets_of(columns(), each),
                SeriesTable({name(Metric::kValidationLoss)})};
  Place place = before;
  const bool same = read_lines(path, inode, offset, [&](std::string_view line) {
    const auto row = parse_metrics_row(line);
    if (!row) return true;
    place = after(place, *row);
    if (on(axis, place) < from) return true;
    if (on(axis, place) > to) return false;
    add_to(tables.steps, tables.validations, place, *row);
    return true;
  });
  if (!same) return std::nullopt;
  return tables;
}

}  // namespace lockstep::live
