// The records of TensorBoard's event files, byte by byte.
//
// A file is a row of records, all numbers little-endian:
//
//   u64    length of the event
//   u32    checksum of those 8 bytes: CRC-32C, turned right by 15 bits, plus 0xA282EAD8
//   bytes  the event, a protocol buffer
//   u32    checksum of the event
//
// The fields of an event that are used here, as number, type, name:
//
//   1 double wall_time     2 int64 step
//   3 string file_version  of the first event alone, "brain.Event:2"
//   5 Summary: 1 Value (repeated): 1 string tag, and one of
//       2 float simple_value
//       5 HistogramProto: 1 double min, 2 double max, 3 double num, 4 double sum,
//         5 double sum_squares, 6 double bucket_limit (repeated), 7 double bucket (repeated)
//       8 TensorProto of a text, with 9 SummaryMetadata, whose 1 PluginData says 1 "text":
//         1 enum dtype, DT_STRING = 7, 2 TensorShapeProto: 2 Dim: 1 int64 size, 8 string
//   7 SessionLog: 1 enum status, START = 1
//
// Functions return a whole record. `time` is in seconds since 1970.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::train {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

// Values of one thing, in buckets whose limits grow by a fixed factor.
struct Histogram {
  std::string tag;
  std::vector<double> values;  // finite and not negative
};

// What every file begins with.
std::string version_record(double time);
// Makes the reader drop `step` and later steps of earlier files.
std::string restart_record(double time, std::int64_t step);
std::string scalars_record(double time, std::int64_t step, std::span<const Scalar> scalars);
std::string histograms_record(double time, std::int64_t step,
                              std::span<const Histogram> histograms);
// The reader takes the text for Markdown.
std::string text_record(double time, std::int64_t step, std::string_view tag,
                        std::string_view text);

}  // namespace lockstep::train
