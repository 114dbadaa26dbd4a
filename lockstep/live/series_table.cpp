#include "lockstep/live/series_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace lockstep::live {
namespace {

using Cell = SeriesTable::Cell;

void join(Cell& into, const Cell& from) {
  if (from.count == 0) return;
  if (into.count == 0) {
    into = from;
    return;
  }
  // Of up to four values in order: the lowest and the highest, and which came first.
  const double values[] = {into.first, into.second, from.first, from.second};
  const auto [low, high] = std::minmax_element(std::begin(values), std::end(values));
  into.first = low < high ? *low : *high;
  into.second = low < high ? *high : *low;
  into.sum += from.sum;
  into.count += from.count;
}

void append_number(std::string& text, double value, bool exact) {
  if (!std::isfinite(value)) {
    text += "null";
  } else if (exact) {
    fmt::format_to(std::back_inserter(text), "{}", value);
  } else {
    fmt::format_to(std::back_inserter(text), "{:.7g}", value);
  }
}

template <class Value>
void append_list(std::string& text, std::size_t from, std::size_t to, bool exact, Value value) {
  text += '[';
  for (std::size_t i = from; i < to; ++i) {
    if (i > from) text += ',';
    append_number(text, value(i), exact);
  }
  text += ']';
}

}  // namespace

SeriesTable::SeriesTable(std::vector<std::string_view> columns, std::size_t most)
    : columns_(std::move(columns)), most_(most) {}

SeriesTable SeriesTable::with_buckets_of(std::vector<std::string_view> columns,
                                         std::uint64_t rows) {
  SeriesTable table(std::move(columns), 0);
  table.rows_per_bucket_ = std::max<std::uint64_t>(rows, 1);
  return table;
}

void SeriesTable::add(const Place& place, const double* values) {
  if (buckets_.empty() || buckets_.back().rows >= rows_per_bucket_) {
    if (most_ > 0 && buckets_.size() >= most_) join_neighbours();
  }
  if (buckets_.empty() || buckets_.back().rows >= rows_per_bucket_) {
    buckets_.push_back({.first = place, .last = place, .rows = 0});
    cells_.resize(cells_.size() + columns_.size());
  }
  Bucket& bucket = buckets_.back();
  bucket.last = place;
  ++bucket.rows;
  Cell* cells = cells_.data() + (buckets_.size() - 1) * columns_.size();
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const double value = values[i];
    if (!std::isfinite(value)) continue;
    join(cells[i], {.first = value, .second = value, .sum = value, .count = 1});
  }
}

void SeriesTable::clear() {
  buckets_.clear();
  cells_.clear();
  if (most_ > 0) rows_per_bucket_ = 1;
  ++epoch_;
}

void SeriesTable::join_neighbours() {
  const std::size_t columns = columns_.size();
  const std::size_t halves = (buckets_.size() + 1) / 2;
  for (std::size_t i = 0; i < halves; ++i) {
    Bucket joined = buckets_[2 * i];
    std::copy_n(cells_.begin() + static_cast<std::ptrdiff_t>(2 * i * columns), columns,
                cells_.begin() + static_cast<std::ptrdiff_t>(i * columns));
    if (2 * i + 1 < buckets_.size()) {
      joined.last = buckets_[2 * i + 1].last;
      joined.rows += buckets_[2 * i + 1].rows;
      for (std::size_t c = 0; c < columns; ++c) {
        join(cells_[i * columns + c], cells_[(2 * i + 1) * columns + c]);
      }
    }
    buckets_[i] = joined;
  }
  buckets_.resize(halves);
  cells_.resize(halves * columns);
  rows_per_bucket_ *= 2;
  ++epoch_;
}

std::string SeriesTable::json(std::size_t from) const {
  const std::size_t to = buckets_.size();
  const bool exact = rows_per_bucket_ == 1;
  std::string text =
      fmt::format("\"epoch\":{},\"from\":{},\"rows\":{}", epoch_, from, rows_per_bucket_);
  const auto places = [&](const char* name, auto place) {
    text += fmt::format(",\"{}\":", name);
    append_list(text, from, to, true, place);
  };
  places("step", [&](std::size_t i) { return buckets_[i].last.step; });
  if (!exact) places("first_step", [&](std::size_t i) { return buckets_[i].first.step; });
  places("tokens", [&](std::size_t i) { return buckets_[i].last.tokens; });
  text += ",\"seconds\":";
  append_list(text, from, to, false, [&](std::size_t i) { return buckets_[i].last.seconds; });
  text += ",\"columns\":{";
  bool any = false;
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const auto has_value = [&](std::size_t i) { return cell(i, c).count > 0; };
    bool has_any = false;
    for (std::size_t i = from; i < to && !has_any; ++i) has_any = has_value(i);
    if (!has_any) continue;
    const auto list = [&](auto value) {
      append_list(text, from, to, exact,
                  [&](std::size_t i) { return has_value(i) ? value(cell(i, c)) : std::nan(""); });
    };
    text += fmt::format("{}\"{}\":", std::exchange(any, true) ? "," : "", columns_[c]);
    if (exact) {
      list([](const Cell& one) { return one.first; });
      continue;
    }
    text += "{\"first\":";
    list([](const Cell& one) { return one.first; });
    text += ",\"second\":";
    list([](const Cell& one) { return one.second; });
    text += ",\"mean\":";
    list([](const Cell& one) { return one.sum / static_cast<double>(one.count); });
    text += '}';
  }
  return text + '}';
}

}  // namespace lockstep::live
