#include "lockstep/live/series_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

namespace lockstep::live {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

struct SourceRow {
  Place place;
  double values[2];
};

std::vector<SourceRow> random_rows(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  std::vector<SourceRow> rows;
  for (std::size_t i = 0; i < count; ++i) {
    const auto step = static_cast<double>(i + 1);
    SourceRow row{.place = {.step = step, .tokens = 512 * step, .seconds = 0.25 * step},
                  .values = {normal(random), random() % 5 == 0 ? normal(random) : kNothing}};
    if (random() % 50 == 0) row.values[0] = std::numeric_limits<double>::infinity();
    rows.push_back(row);
  }
  return rows;
}

// Computes every cell from its rows.
void expect_brute_force(const SeriesTable& table, const std::vector<SourceRow>& rows) {
  const auto each = static_cast<std::size_t>(table.rows_per_bucket());
  ASSERT_EQ(table.size(), (rows.size() + each - 1) / each);
  for (std::size_t bucket = 0; bucket < table.size(); ++bucket) {
    const std::size_t begin = bucket * each;
    const std::size_t end = std::min(begin + each, rows.size());
    EXPECT_EQ(table.first_place(bucket).step, rows[begin].place.step);
    EXPECT_EQ(table.last_place(bucket).step, rows[end - 1].place.step);
    EXPECT_EQ(table.last_place(bucket).tokens, rows[end - 1].place.tokens);
    for (std::size_t column = 0; column < 2; ++column) {
      std::vector<double> values;
      for (std::size_t i = begin; i < end; ++i) {
        if (std::isfinite(rows[i].values[column])) values.push_back(rows[i].values[column]);
      }
      const SeriesTable::Cell& cell = table.cell(bucket, column);
      ASSERT_EQ(cell.count, values.size());
      if (values.empty()) continue;
      const auto low = std::ranges::min_element(values);
      const auto high = std::ranges::max_element(values);
      EXPECT_EQ(cell.first, low <= high ? *low : *high);
      EXPECT_EQ(cell.second, low <= high ? *high : *low);
      double sum = 0;
      for (const double value : values) sum += value;
      EXPECT_NEAR(cell.sum, sum, 1e-9 * static_cast<double>(values.size()));
    }
  }
}

TEST(SeriesTables, KeepTheExtremesOfEveryBucket) {
  for (const std::size_t count : {0u, 1u, 2u, 63u, 64u, 65u, 66u, 127u, 128u, 129u, 1000u, 5001u}) {
    const auto rows = random_rows(count, static_cast<unsigned>(count));
    SeriesTable table({"a", "b"}, 64);
    for (const SourceRow& row : rows) table.add(row.place, row.values);
    EXPECT_LE(table.size(), 64u);
    if (count > 64) {
      EXPECT_GT(table.size(), 32u);
    }
    expect_brute_force(table, rows);
    for (const std::uint64_t each : {1u, 3u, 100u}) {
      SeriesTable fixed = SeriesTable::with_buckets_of({"a", "b"}, each);
      for (const SourceRow& row : rows) fixed.add(row.place, row.values);
      EXPECT_EQ(fixed.rows_per_bucket(), each);
      expect_brute_force(fixed, rows);
    }
  }
}

TEST(SeriesTables, HaveANewEpochWhereOldBucketsChanged) {
  SeriesTable table({"a"}, 8);
  const double value = 1;
  for (int step = 1; step <= 8; ++step) table.add({.step = 1.0 * step}, &value);
  const std::uint64_t before = table.epoch();
  table.add({.step = 9}, &value);
  EXPECT_NE(table.epoch(), before);
  EXPECT_EQ(table.rows_per_bucket(), 2u);
  EXPECT_EQ(table.size(), 5u);
  const std::uint64_t then = table.epoch();
  table.add({.step = 10}, &value);
  EXPECT_EQ(table.epoch(), then);
  table.clear();
  EXPECT_NE(table.epoch(), then);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.rows_per_bucket(), 1u);
}

TEST(SeriesTables, WriteSingleRowsToTheBit) {
  SeriesTable table({"a", "b", "never"});
  const double values[][3] = {{0.1 + 0.2, kNothing, kNothing},
                              {1.0 / 3, 5e-324, kNothing},
                              {-1.7976931348623157e308, kNothing, kNothing}};
  for (int i = 0; i < 3; ++i) table.add({.step = i + 1.0, .tokens = 1e15 * i}, values[i]);
  const auto json = nlohmann::json::parse('{' + table.json(0) + '}');
  EXPECT_EQ(json["rows"], 1);
  EXPECT_FALSE(json["columns"].contains("never"));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(json["columns"]["a"][i], values[i][0]);
  EXPECT_EQ(json["columns"]["b"], nlohmann::json::parse("[null,5e-324,null]"));
  EXPECT_EQ(json["tokens"][2], 2e15);
  const auto rest = nlohmann::json::parse('{' + table.json(2) + '}');
  EXPECT_EQ(rest["from"], 2);
  EXPECT_EQ(rest["step"], nlohmann::json::parse("[3.0]"));
}

}  // namespace
}  // namespace lockstep::live
