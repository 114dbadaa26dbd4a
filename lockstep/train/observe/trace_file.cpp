#include "lockstep/train/observe/trace_file.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"

namespace lockstep::train {
namespace {

using TraceJson = nlohmann::json;
using parallel::kTraceLanes;
using parallel::TraceLane;
using parallel::TraceSpan;

constexpr std::int64_t kNanoseconds = 1000;  // of a microsecond

std::string microseconds(std::int64_t nanoseconds) {
  const std::string_view sign = nanoseconds < 0 ? "-" : "";
  const std::int64_t size = nanoseconds < 0 ? -nanoseconds : nanoseconds;
  return fmt::format("{}{}.{:03}", sign, size / kNanoseconds, size % kNanoseconds);
}

std::string trace_text(const std::string& text) {
  return TraceJson(text).dump(-1, ' ', false, TraceJson::error_handler_t::replace);
}

// What viewers call ranks and lanes, and the order in which they show them.
std::string naming_events(int rank) {
  std::string events = fmt::format(
      "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{0},\"args\":{{\"name\":\"rank {0}\"}}}},\n"
      "{{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":{0},\"args\":{{\"sort_index\":{0}}}}"
      "}",
      rank);
  for (std::size_t lane = 0; lane < kTraceLanes; ++lane) {
    fmt::format_to(std::back_inserter(events),
                   ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{0},\"tid\":{1},\"args\":"
                   "{{\"name\":\"{2}\"}}}},\n{{\"ph\":\"M\",\"name\":\"thread_sort_index\","
                   "\"pid\":{0},\"tid\":{1},\"args\":{{\"sort_index\":{1}}}}}",
                   rank, lane, name(static_cast<TraceLane>(lane)));
  }
  return events;
}

std::int64_t nanoseconds_at(const TraceJson& event, const char* key) {
  return std::llround(event.at(key).get<double>() * static_cast<double>(kNanoseconds));
}

TraceSpan span_of(const TraceJson& event) {
  const TraceJson& args = event.at("args");
  const auto lane = event.at("tid").get<std::size_t>();
  if (lane >= kTraceLanes) fail(ErrorCode::kInvalidArgument, "it has an unknown lane {}", lane);
  TraceSpan span{.lane = static_cast<TraceLane>(lane),
                 .kind = event.at("cat").get<std::string>(),
                 .of = {},
                 .begin = nanoseconds_at(event, "ts"),
                 .end = 0,
                 .step = args.at("step").get<std::int64_t>(),
                 .bytes = args.value("bytes", std::uint64_t{0}),
                 .elements = args.value("elements", std::uint64_t{0})};
  span.end = span.begin + nanoseconds_at(event, "dur");
  const auto name = event.at("name").get<std::string>();
  if (name.size() > span.kind.size()) span.of = name.substr(span.kind.size() + 1);
  return span;
}

}  // namespace

std::filesystem::path trace_path(const std::filesystem::path& folder) {
  return folder / "trace.json";
}

std::string trace_events(int rank, std::span<const TraceSpan> spans, std::int64_t shift) {
  std::string events = naming_events(rank);
  for (const TraceSpan& span : spans) {
    auto out = std::back_inserter(events);
    fmt::format_to(out,
                   ",\n{{\"ph\":\"X\",\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{},\"ts\":{},"
                   "\"dur\":{},\"args\":{{\"step\":{}",
                   trace_text(span.name()), trace_text(span.kind), rank,
                   static_cast<int>(span.lane), microseconds(span.begin + shift),
                   microseconds(span.end - span.begin), span.step);
    if (span.bytes > 0) fmt::format_to(out, ",\"bytes\":{}", span.bytes);
    if (span.elements > 0) fmt::format_to(out, ",\"elements\":{}", span.elements);
    events += "}}";
  }
  return events;
}

void write_trace(const std::filesystem::path& path, std::span<const std::string> events_of_ranks) {
  std::vector<std::string_view> pieces = {"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"};
  for (std::size_t i = 0; i < events_of_ranks.size(); ++i) {
    if (i > 0) pieces.emplace_back(",\n");
    pieces.emplace_back(events_of_ranks[i]);
  }
  pieces.emplace_back("\n]}\n");
  write_file(path, pieces);
}

std::vector<RankTrace> read_trace(const std::filesystem::path& path) {
  std::map<int, RankTrace> ranks;
  try {
    const TraceJson file = TraceJson::parse(read_file(path));
    for (const TraceJson& event : file.at("traceEvents")) {
      const int rank = event.at("pid").get<int>();
      RankTrace& of = ranks[rank];
      of.rank = rank;
      if (event.at("ph") == "X") of.spans.push_back(span_of(event));
    }
  } catch (const TraceJson::exception& error) {
    fail(ErrorCode::kInvalidArgument, "{} is not a lockstep trace: {}", path.string(),
         error.what());
  }
  std::vector<RankTrace> all;
  for (auto& [rank, of] : ranks) all.push_back(std::move(of));
  return all;
}

}  // namespace lockstep::train
