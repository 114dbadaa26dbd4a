#include "lockstep/live/metrics_row.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "lockstep/train/observe/metrics_line.h"

namespace lockstep::live {
namespace {

// What a library for JSON reads, as the oracle.
std::optional<MetricsRow> by_library(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  MetricsRow row;
  for (std::size_t i = 0; i < kMetrics; ++i) {
    row.values[i] = std::nan("");
    const auto found = json.find(name(static_cast<Metric>(i)));
    if (found == json.end()) continue;
    if (found->is_number()) row.values[i] = found->get<double>();
    if (found->is_boolean()) row.values[i] = found->get<bool>() ? 1 : 0;
  }
  const double step = row[Metric::kStep];
  if (!(step >= 1) || step != std::floor(step)) return std::nullopt;
  return row;
}

void expect_as_library(const std::string& line) {
  const auto expected = by_library(line);
  const auto got = parse_metrics_row(line);
  ASSERT_EQ(got.has_value(), expected.has_value()) << line;
  if (!got) return;
  for (std::size_t i = 0; i < kMetrics; ++i) {
    const double a = got->values[i], b = expected->values[i];
    EXPECT_TRUE(a == b || (std::isnan(a) && std::isnan(b)))
        << name(static_cast<Metric>(i)) << " of " << line;
  }
}

TEST(MetricsRows, HaveEveryValueOfWhatLockstepWrites) {
  train::StepRecord record;
  record.metrics = {.step = 12,
                    .loss = 0.1 + 0.2,
                    .gradient_norm = 1e-300,
                    .rate = 3e-4,
                    .loss_scale = 65536,
                    .tokens = 16384,
                    .seconds = 0.9146};
  record.validation_loss = std::nan("");
  record.data_seconds = 1e-7;
  record.checkpoint_seconds = 2;
  record.validation_seconds = 3;
  record.background_seconds = 4;
  record.memory_bytes = 613'220'352;
  record.metrics.filed = {.read_bytes = 7, .written_bytes = 8, .waited_seconds = 0.009};
  record.workers = {.compute_seconds = 0.8,
                    .communication_seconds = 0.2,
                    .exposed_seconds = 0.1,
                    .longest_exposed_seconds = 0.15,
                    .bytes_sent = 1 << 30,
                    .bytes_across = 5,
                    .staleness = 1.5,
                    .most_stale = 3,
                    .slowest_rank = 2,
                    .slowest_seconds = 0.85};
  const std::string line = train::metrics_line(record, true);
  expect_as_library(line.substr(0, line.size() - 1));
  const auto row = parse_metrics_row(line.substr(0, line.size() - 1));
  ASSERT_TRUE(row);
  for (std::size_t i = 0; i < kMetrics; ++i) {
    const auto metric = static_cast<Metric>(i);
    EXPECT_EQ(std::isnan(row->values[i]), metric == Metric::kValidationLoss)
        << name(metric) << ": every key is one that lockstep writes";
  }
  EXPECT_EQ((*row)[Metric::kLoss], 0.1 + 0.2);
}

TEST(MetricsRows, AreNoneOfBrokenLines) {
  const std::string whole =
      R"({"step":3,"loss":2.5,"lr":0.001,"tokens":512,"step_ms":1.5,"skipped":false})";
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(parse_metrics_row(whole.substr(0, bytes))) << bytes;
  }
  EXPECT_TRUE(parse_metrics_row(whole));
  for (const char* line : {"",
                           "{}",
                           "[]",
                           "null",
                           "{\"step\":0}",
                           "{\"step\":1.5}",
                           "{\"step\":-3}",
                           "{\"step\":null}",
                           "{\"loss\":3}",
                           "{\"step\":1}x",
                           "{\"step\":1,}",
                           "{\"step\":01}",
                           "{\"step\":+1}",
                           "{\"step\":1.}",
                           "{\"step\":inf}",
                           "{\"step\":nan}",
                           "{\"step\":0x1}",
                           "{\"step\":\"1\"}",
                           "{'step':1}",
                           "{\"step\" 1}"}) {
    expect_as_library(line);
    EXPECT_FALSE(parse_metrics_row(line)) << line;
  }
}

TEST(MetricsRows, MayBeWrittenByOthers) {
  for (const char* line :
       {R"({"step": 3, "loss": 2.5})", R"({"loss":1e400,"step":2})", R"({"step":2,"loss":-0.0})",
        R"({"step":5,"other":"text with \" and }","loss":1})", R"({"a":{"b":[1]},"step":2})",
        R"({"step":1e3,"loss":1E-5})", R"({"step":4,"loss":"high","lr":[]})",
        R"({"step":4,"loss":1,"loss":2})", R"({"step":18446744073709551616})"}) {
    expect_as_library(line);
  }
}

// Lines with a byte changed are read alike or not at all.
TEST(MetricsRows, AreThoseOfTheLibraryWhateverIsInTheLine) {
  std::mt19937 random(3);
  const std::string whole =
      R"({"step":300,"loss":2.3125,"val_loss":null,"lr":0.0006,"grad_norm":0.83,"tokens":16384,)"
      R"("tokens_per_s":17914.2,"step_ms":914.6,"data_ms":4e-1,"memory_bytes":613220352,)"
      R"("skipped":false})";
  const std::string bytes = "0123456789.-+eE\"{}[],: ntfau\\_x";
  for (int round = 0; round < 20'000; ++round) {
    std::string line = whole;
    for (std::size_t i = 0; i <= random() % 3; ++i) {
      line[random() % line.size()] = bytes[random() % bytes.size()];
    }
    expect_as_library(line);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep::live
