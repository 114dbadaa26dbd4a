#include "lockstep/train/observe/event_record.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <vector>

#include "lockstep/base/simd/crc32c.h"

namespace lockstep::train {
namespace {

// Ways in which a protocol buffer writes a field.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <class Unsigned>
void put_fixed(std::string& to, Unsigned value) {
  for (std::size_t byte = 0; byte < sizeof(Unsigned); ++byte) {
    to += static_cast<char>(static_cast<std::uint8_t>(value >> (8 * byte)));
  }
}

// Seven bits a byte, the lowest first; the eighth says that more follow.
void put_varint(std::string& to, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7)
    to += static_cast<char>(static_cast<std::uint8_t>(value | 0x80));
  to += static_cast<char>(value);
}

void put_key(std::string& to, std::uint32_t field, Wire wire) {
  put_varint(to, field << 3 | static_cast<std::uint32_t>(wire));
}

void put_bytes(std::string& to, std::uint32_t field, std::string_view bytes) {
  put_key(to, field, Wire::kBytes);
  put_varint(to, bytes.size());
  to += bytes;
}

// Zero is what a reader takes for a field that is missing.
void put_double(std::string& to, std::uint32_t field, double value) {
  if (value == 0) return;
  put_key(to, field, Wire::kFixed64);
  put_fixed(to, std::bit_cast<std::uint64_t>(value));
}

void put_doubles(std::string& to, std::uint32_t field, std::span<const double> values) {
  std::string packed;
  for (const double value : values) put_fixed(packed, std::bit_cast<std::uint64_t>(value));
  put_bytes(to, field, packed);
}

std::string event_of(double time) {
  std::string event;
  put_double(event, 1, time);
  return event;
}

std::string event_of(double time, std::int64_t step) {
  std::string event = event_of(time);
  put_key(event, 2, Wire::kVarint);
  put_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

// Masks the checksum, so that a checksum of bytes that contain a checksum stays meaningful.
std::uint32_t masked_checksum(std::string_view bytes) {
  return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8;
}

std::string framed(std::string_view event) {
  std::string record;
  put_fixed(record, static_cast<std::uint64_t>(event.size()));
  put_fixed(record, masked_checksum(record));
  record += event;
  put_fixed(record, masked_checksum(event));
  return record;
}

std::string summary_record(double time, std::int64_t step, std::string_view summary) {
  std::string event = event_of(time, step);
  put_bytes(event, 5, summary);
  return framed(event);
}

constexpr double kBucketsPerDoubling = 4;

// The bucket whose limit is the least that is not below the value.
double bucket_of(double value) { return std::ceil(std::log2(value) * kBucketsPerDoubling); }
double limit_of(double bucket) { return std::exp2(bucket / kBucketsPerDoubling); }

// In the order of the buckets, without those before the first value and after the last. Zeros have
// a bucket of their own, the first.
std::string histogram_of(std::span<const double> values) {
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const auto positive = std::ranges::upper_bound(sorted, 0.0);
  std::vector<double> limits;
  std::vector<double> counts;
  if (positive != sorted.begin()) {
    limits.push_back(0);
    counts.push_back(static_cast<double>(positive - sorted.begin()));
  }
  if (positive != sorted.end()) {
    const double first = bucket_of(*positive);
    const std::size_t zeros = counts.size();
    for (double bucket = first; bucket <= bucket_of(sorted.back()); ++bucket) {
      limits.push_back(limit_of(bucket));
      counts.push_back(0);
    }
    for (auto value = positive; value != sorted.end(); ++value) {
      counts.at(zeros + static_cast<std::size_t>(bucket_of(*value) - first)) += 1;
    }
  }
  std::string histogram;
  put_double(histogram, 1, sorted.front());
  put_double(histogram, 2, sorted.back());
  put_double(histogram, 3, static_cast<double>(sorted.size()));
  put_double(histogram, 4, std::accumulate(sorted.begin(), sorted.end(), 0.0));
  put_double(histogram, 5, std::inner_product(sorted.begin(), sorted.end(), sorted.begin(), 0.0));
  put_doubles(histogram, 6, limits);
  put_doubles(histogram, 7, counts);
  return histogram;
}

}  // namespace

std::string version_record(double time) {
  std::string event = event_of(time);
  put_bytes(event, 3, "brain.Event:2");
  return framed(event);
}

std::string restart_record(double time, std::int64_t step) {
  constexpr std::uint64_t kStart = 1;
  std::string session;
  put_key(session, 1, Wire::kVarint);
  put_varint(session, kStart);
  std::string event = event_of(time, step);
  put_bytes(event, 7, session);
  return framed(event);
}

std::string scalars_record(double time, std::int64_t step, std::span<const Scalar> scalars) {
  std::string summary;
  for (const Scalar& scalar : scalars) {
    std::string value;
    put_bytes(value, 1, scalar.tag);
    put_key(value, 2, Wire::kFixed32);
    put_fixed(value, std::bit_cast<std::uint32_t>(static_cast<float>(scalar.value)));
    put_bytes(summary, 1, value);
  }
  return summary_record(time, step, summary);
}

std::string histograms_record(double time, std::int64_t step,
                              std::span<const Histogram> histograms) {
  std::string summary;
  for (const Histogram& histogram : histograms) {
    if (histogram.values.empty()) continue;
    std::string value;
    put_bytes(value, 1, histogram.tag);
    put_bytes(value, 5, histogram_of(histogram.values));
    put_bytes(summary, 1, value);
  }
  return summary_record(time, step, summary);
}

std::string text_record(double time, std::int64_t step, std::string_view tag,
                        std::string_view text) {
  constexpr std::uint64_t kString = 7;
  std::string dimension;
  put_key(dimension, 1, Wire::kVarint);
  put_varint(dimension, 1);
  std::string shape;
  put_bytes(shape, 2, dimension);
  std::string tensor;
  put_key(tensor, 1, Wire::kVarint);
  put_varint(tensor, kString);
  put_bytes(tensor, 2, shape);
  put_bytes(tensor, 8, text);
  std::string plugin;
  put_bytes(plugin, 1, "text");
  std::string metadata;
  put_bytes(metadata, 1, plugin);
  std::string value;
  put_bytes(value, 1, tag);
  put_bytes(value, 8, tensor);
  put_bytes(value, 9, metadata);
  std::string summary;
  put_bytes(summary, 1, value);
  return summary_record(time, step, summary);
}

}  // namespace lockstep::train
