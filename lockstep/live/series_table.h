// Columns of numbers over the steps of a run, reduced to few points without losing a spike.
//
// Neighbouring rows share a *bucket*. It keeps, of every column, the lowest and the highest value
// in the order in which they came, and the sum for a mean; so a spike of one step among a million
// still shows. A table with a limit joins neighbours whenever it has too many buckets: all but the
// last hold equally many rows, and memory does not depend on the length of the run. A bucket of one
// row is that row, to the bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::live {

// What a row is placed by: any of these may be the horizontal axis of a chart.
struct Place {
  double step = 0;
  double tokens = 0;   // of all steps so far
  double seconds = 0;  // the same
};

class SeriesTable {
 public:
  static constexpr std::size_t kMostBuckets = 2048;

  // Joins buckets as needed.
  explicit SeriesTable(std::vector<std::string_view> columns, std::size_t most = kMostBuckets);
  // Any number of buckets, each of so many rows.
  static SeriesTable with_buckets_of(std::vector<std::string_view> columns, std::uint64_t rows);

  // `values` has one of each column; NaN or infinite: none.
  void add(const Place& place, const double* values);
  void clear();

  std::size_t size() const { return buckets_.size(); }
  std::uint64_t rows_per_bucket() const { return rows_per_bucket_; }
  // Changes whenever buckets that were there before the last one are others now.
  std::uint64_t epoch() const { return epoch_; }

  struct Cell {
    double first = 0, second = 0;  // lowest and highest, as they came
    double sum = 0;
    std::uint64_t count = 0;  // of values; 0: none
  };
  const Place& first_place(std::size_t bucket) const { return buckets_[bucket].first; }
  const Place& last_place(std::size_t bucket) const { return buckets_[bucket].last; }
  const Cell& cell(std::size_t bucket, std::size_t column) const {
    return cells_[bucket * columns_.size() + column];
  }

  // Members of a JSON object: buckets from `from` on.
  //
  //   "epoch":0,"from":0,"rows":1,"step":[...],"tokens":[...],"seconds":[...],
  //   "columns":{"loss":[4.1,4.0,null],...}
  //
  // where a bucket is one row. Where it is more, places are those of its last row, "first_step" has
  // those of its first, and a column is {"first":[...],"second":[...],"mean":[...]} with numbers of
  // seven digits. Columns without any value are left out.
  std::string json(std::size_t from) const;

 private:
  struct Bucket {
    Place first, last;
    std::uint64_t rows = 0;
  };
  void join_neighbours();

  std::vector<std::string_view> columns_;
  std::size_t most_;  // 0: no limit
  std::uint64_t rows_per_bucket_ = 1;
  std::uint64_t epoch_ = 0;
  std::vector<Bucket> buckets_;
  std::vector<Cell> cells_;  // of each bucket one for each column
};

}  // namespace lockstep::live
