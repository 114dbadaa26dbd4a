// The flight recorder of one rank under MPI: its last operations, reported when the group fails. A
// rank cannot read another rank's memory, so each reports its own.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "lockstep/comm/recorder_dump.h"

namespace lockstep::mpi {

class Recorder {
 public:
  // Records the start of an operation; pass the result to end().
  std::uint64_t begin(std::string text) {
    records_[next_ % records_.size()] = {next_, std::move(text), Clock::now(), std::nullopt};
    return next_++;
  }
  void end(std::uint64_t number) {
    Record& record = records_[number % records_.size()];
    if (record.number == number) record.ended = Clock::now();  // else newer ones took its place
  }

  // A line each, in the order in which they started.
  std::string text() const {
    const auto now = Clock::now();
    const auto since = [&](Clock::time_point then) {
      return std::chrono::duration<double>(now - then).count();
    };
    std::string lines;
    const std::uint64_t first = next_ > records_.size() ? next_ - records_.size() : 0;
    for (std::uint64_t number = first; number < next_; ++number) {
      const Record& record = records_[number % records_.size()];
      const auto ended = record.ended ? std::optional(since(*record.ended)) : std::nullopt;
      lines += fmt::format("  {}: {}\n", record.text, describe_times(since(record.started), ended));
    }
    return lines;
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Record {
    std::uint64_t number = 0;
    std::string text;
    Clock::time_point started;
    std::optional<Clock::time_point> ended;
  };

  std::array<Record, 8> records_;
  std::uint64_t next_ = 0;
};

}  // namespace lockstep::mpi
