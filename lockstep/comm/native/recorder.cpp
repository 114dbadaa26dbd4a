#include "lockstep/comm/native/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/comm/recorder_dump.h"

namespace lockstep {
namespace {

using shared::MessageKind;
using shared::MessageRecord;

constexpr int kOperationsInDump = 5;

struct Line {
  std::uint64_t started = 0;
  std::uint64_t ended = 0;
  std::string what;
};

std::string describe(const MessageRecord& record) {
  const std::uint64_t number = record.number.load(std::memory_order_relaxed);
  const std::uint64_t count = record.count.load(std::memory_order_relaxed);
  const std::string_view dtype = name(record.dtype.load(std::memory_order_relaxed));
  const std::int32_t peer = record.peer.load(std::memory_order_relaxed);
  switch (record.kind.load(std::memory_order_relaxed)) {
    case MessageKind::kSend:
      return fmt::format("send {}: {} {} to rank {}", number, count, dtype, peer);
    case MessageKind::kReceive:
      return fmt::format("receive {}: {} {} from rank {}", number, count, dtype, peer);
    case MessageKind::kSignal:
      return fmt::format("signal {} to rank {}", number, peer);
    case MessageKind::kWaitSignal:
      break;
  }
  return fmt::format("wait for signal {} from rank {}", number, peer);
}

void sort_by_start(std::vector<Line>& lines) {
  std::sort(lines.begin(), lines.end(),
            [](const Line& a, const Line& b) { return a.started < b.started; });
}

void keep_newest(std::vector<Line>& lines, int most) {
  sort_by_start(lines);
  const std::size_t kept = std::min(lines.size(), static_cast<std::size_t>(most));
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kept));
}

}  // namespace

std::uint64_t Recorder::begin_message(const MessageNote& note) {
  const std::uint64_t serial = messages_.fetch_add(1, std::memory_order_relaxed) + 1;
  MessageRecord& record = area_.messages[serial % shared::kMessageRecords];
  record.serial.store(serial, std::memory_order_relaxed);
  record.started.store(ticks(), std::memory_order_relaxed);
  record.ended.store(0, std::memory_order_relaxed);
  record.number.store(note.number, std::memory_order_relaxed);
  record.count.store(note.count, std::memory_order_relaxed);
  record.peer.store(note.peer, std::memory_order_relaxed);
  record.kind.store(note.kind, std::memory_order_relaxed);
  record.dtype.store(note.dtype, std::memory_order_relaxed);
  return serial;
}

void Recorder::end_message(std::uint64_t serial) {
  MessageRecord& record = area_.messages[serial % shared::kMessageRecords];
  // Newer ones may have taken its place.
  if (record.serial.load(std::memory_order_relaxed) != serial) return;
  record.ended.store(ticks(), std::memory_order_relaxed);
}

std::string recorded_operations(const shared::Area& area, int most) {
  std::vector<Line> lines;
  for (const shared::Record& record : area.records) {
    const std::uint64_t started = record.started.load(std::memory_order_relaxed);
    if (started == 0) continue;
    lines.push_back({started, record.ended.load(std::memory_order_relaxed),
                     describe(record.fingerprint.load())});
  }
  keep_newest(lines, most);
  std::vector<Line> messages;
  for (const MessageRecord& record : area.messages) {
    const std::uint64_t started = record.started.load(std::memory_order_relaxed);
    if (started == 0) continue;
    messages.push_back({started, record.ended.load(std::memory_order_relaxed), describe(record)});
  }
  keep_newest(messages, most);
  lines.insert(lines.end(), messages.begin(), messages.end());
  sort_by_start(lines);

  const std::uint64_t now = ticks();
  const auto since = [&](std::uint64_t then) {
    return static_cast<double>(now > then ? now - then : 0) / tick_rate();
  };
  std::string text;
  for (const Line& line : lines) {
    const auto ended = line.ended == 0 ? std::nullopt : std::optional(since(line.ended));
    text += fmt::format("  {}: {}\n", line.what, describe_times(since(line.started), ended));
  }
  return text;
}

void dump_recorders(const Error& error, int rank, int size,
                    const std::map<int, const shared::Area*>& areas, const std::string& path) {
  std::string text = fmt::format("rank {} of {}: {}\n", rank, size, error.what());
  const auto add = [&](int shown) {
    const auto area = areas.find(shown);
    if (area == areas.end()) return;
    text += fmt::format("last operations of rank {}:\n{}", shown,
                        recorded_operations(*area->second, kOperationsInDump));
  };
  add(rank);
  for (int culprit : error.ranks()) {
    if (culprit != rank) add(culprit);
  }
  dump_record(text, path);
}

}  // namespace lockstep
