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
//   5 Summary: 1 Value (repeated): 1 string tag, 2 float simple_value
//   7 SessionLog: 1 enum status, START = 1
//
// Functions return a whole record. `time` is in seconds since 1970.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::train {

struct Scalar {
  std::string_view tag;
  double value = 0;
};

// What every file begins with.
std::string version_record(double time);
// Makes the reader drop `step` and later steps of earlier files.
std::string restart_record(double time, std::int64_t step);
std::string scalars_record(double time, std::int64_t step, std::span<const Scalar> scalars);

}  // namespace lockstep::train
