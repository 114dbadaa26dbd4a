#include "lockstep/comm/native/recorder.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "lockstep/base/units.h"

namespace lockstep {

std::string recorded_operations(const shared::Area& area, int most) {
  std::vector<shared::Record> records;
  for (const shared::Record& record : area.records) {
    if (record.started != 0) records.push_back(record);
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.started < b.started; });
  const std::uint64_t now = ticks();
  const auto seconds = [](std::uint64_t span) {
    return format_seconds(static_cast<double>(span) / tick_rate());
  };
  std::string text;
  const std::size_t first =
      records.size() - std::min(records.size(), static_cast<std::size_t>(most));
  for (std::size_t i = first; i < records.size(); ++i) {
    const shared::Record& record = records[i];
    text += "  " + describe(record.fingerprint);
    text += record.ended == 0
                ? fmt::format(": started {} ago, not ended\n", seconds(now - record.started))
                : fmt::format(": took {}, ended {} ago\n", seconds(record.ended - record.started),
                              seconds(now - record.ended));
  }
  return text;
}

}  // namespace lockstep
