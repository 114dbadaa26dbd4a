// What a run writes besides its metrics: event files and traces.
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string_view>

#include "lockstep/base/file/file.h"
#include "lockstep/bench/data_parallel/training.h"
#include "lockstep/train/observe/trace_file.h"

namespace lockstep::bench::data_parallel {
namespace {

namespace fs = std::filesystem;

// Of the records and fields that train/observe/event_record.h describes.
constexpr std::size_t kRecordHead = 12;  // u64 length, u32 checksum
constexpr std::size_t kRecordTail = 4;   // u32 checksum
constexpr char kTimeKey = 0x09;          // field 1, eight bytes
constexpr char kStepKey = 0x10;          // field 2, seven bits a byte

template <class Number>
Number fixed_at(std::string_view bytes, std::size_t at) {
  static_assert(std::endian::native == std::endian::little);
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

// Of an event that begins with its time and its step, as those of steps do.
std::optional<StepStamp> stamp_of(std::string_view event) {
  constexpr std::size_t kStepAt = 1 + sizeof(double);
  if (event.size() < kStepAt + 2 || event[0] != kTimeKey || event[kStepAt] != kStepKey) {
    return std::nullopt;
  }
  StepStamp stamp{.step = 0, .time = fixed_at<double>(event, 1)};
  int shift = 0;
  for (std::size_t at = kStepAt + 1; at < event.size() && shift < 63; ++at, shift += 7) {
    const auto byte = static_cast<unsigned char>(event[at]);
    stamp.step |= static_cast<std::int64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) break;
  }
  return stamp;
}

}  // namespace

std::vector<StepStamp> step_stamps(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(folder / "tensorboard", none)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<StepStamp> stamps;
  for (const fs::path& path : files) {
    const std::string all = read_file(path);
    std::string_view rest = all;
    while (rest.size() >= kRecordHead + kRecordTail) {
      const auto length = fixed_at<std::uint64_t>(rest, 0);
      if (length > rest.size() - kRecordHead - kRecordTail) break;
      if (const auto stamp = stamp_of(rest.substr(kRecordHead, length))) stamps.push_back(*stamp);
      rest.remove_prefix(kRecordHead + length + kRecordTail);
    }
  }
  return stamps;
}

std::vector<double> span_seconds(const fs::path& folder, std::string_view kind) {
  constexpr double kNanoseconds = 1e9;  // of a second
  const std::vector<train::RankTrace> ranks = train::read_trace(train::trace_path(folder));
  std::map<std::int64_t, double> sums;  // by step
  for (const train::RankTrace& rank : ranks) {
    for (const parallel::TraceSpan& span : rank.spans) {
      if (span.kind != kind) continue;
      sums[span.step] += static_cast<double>(span.end - span.begin) / kNanoseconds;
    }
  }
  std::vector<double> means;
  for (const auto& [step, sum] : sums) means.push_back(sum / static_cast<double>(ranks.size()));
  return means;
}

}  // namespace lockstep::bench::data_parallel
