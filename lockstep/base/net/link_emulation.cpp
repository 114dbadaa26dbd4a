#include "lockstep/base/net/link_emulation.h"

#include <cmath>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"

namespace lockstep {
namespace {

using std::chrono::nanoseconds;

constexpr double kNanoseconds = 1e9;        // of a second
constexpr double kSlowest = 1e3 / 8;        // bytes per second
constexpr double kFastest = 1e15;           // bytes per second
constexpr double kLongestDelay = 60;        // seconds
constexpr nanoseconds kLongest{1LL << 61};  // 73 years, so that sums of times stay in range

double passage_nanoseconds(std::size_t bytes, double bytes_per_second) {
  return static_cast<double>(bytes) / bytes_per_second * kNanoseconds;
}

// A line is held for a few instructions. If its holder was killed within them,
// the others take it after kMaxTries.
class LineLock {
 public:
  explicit LineLock(LinkPace::Line& line) : line_(line) {
    constexpr int kMaxTries = 1 << 20;
    std::uint32_t nobody = 0;
    for (int i = 0; i < kMaxTries; ++i, nobody = 0) {
      if (line_.holder.compare_exchange_weak(nobody, 1, std::memory_order_acquire)) return;
      std::this_thread::yield();
    }
  }
  ~LineLock() { line_.holder.store(0, std::memory_order_release); }
  LineLock(const LineLock&) = delete;
  LineLock& operator=(const LineLock&) = delete;

 private:
  LinkPace::Line& line_;
};

[[noreturn]] void fail_form(std::string_view text, std::string_view why) {
  fail(ErrorCode::kInvalidArgument,
       "'{}' does not describe an emulated link: {}; write its bandwidth and its delay like "
       "1Gbit,100us, or the bandwidth alone like 10Gbit",
       text, why);
}

double parse_part(std::string_view text, std::string_view part, double (*parse)(std::string_view)) {
  try {
    return parse(trim(part));
  } catch (const Error& error) {
    fail_form(text, error.what());
  }
}

struct Scale {
  std::string_view name;
  double factor;
};

// The largest unit that leaves at least one of it.
template <std::size_t N>
std::string scaled(double value, const Scale (&units)[N]) {
  std::size_t best = 0;
  while (best + 1 < N && value >= units[best + 1].factor) ++best;
  return fmt::format("{:.15g}{}", value / units[best].factor, units[best].name);
}

}  // namespace

nanoseconds LinkEmulation::passage_time(std::size_t bytes) const {
  const double passage = std::ceil(passage_nanoseconds(bytes, bytes_per_second));
  if (passage >= static_cast<double>(kLongest.count())) return kLongest;
  return nanoseconds(static_cast<nanoseconds::rep>(passage));
}

LinkEmulation parse_link_emulation(std::string_view text) {
  const std::vector<std::string_view> parts = split_text(text, ',');
  if (parts.size() > 2) fail_form(text, "it has more than two values");
  const double rate = parse_part(text, parts[0], parse_bytes_per_second);
  const double delay = parts.size() > 1 ? parse_part(text, parts[1], parse_seconds) : 0;
  if (!(rate >= kSlowest)) fail_form(text, "a bandwidth must be at least 1 Kbit a second");
  if (!(rate <= kFastest)) fail_form(text, "the bandwidth is too large");
  if (!(delay <= kLongestDelay)) fail_form(text, "a delay is at most one minute");
  return {rate, nanoseconds(std::llround(delay * kNanoseconds))};
}

std::string to_text(const LinkEmulation& link) {
  constexpr Scale kRates[] = {{"bit", 1}, {"Kbit", 1e3}, {"Mbit", 1e6}, {"Gbit", 1e9}};
  constexpr Scale kTimes[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  const std::string rate = scaled(link.bytes_per_second * 8, kRates);
  if (link.delay.count() == 0) return rate;
  return fmt::format("{},{}", rate, scaled(static_cast<double>(link.delay.count()), kTimes));
}

LinkPace::Time LinkPace::book(std::size_t bytes, Time ready_at) {
  const LineLock lock(line());
  Time& free = line().free;
  double& fraction = line().fraction;
  if (ready_at > free) {
    free = ready_at;
    fraction = 0;
  }
  const double passage = passage_nanoseconds(bytes, bytes_per_second_) + fraction;
  const double whole = std::floor(passage);
  if (whole >= static_cast<double>((Time(kLongest) - free).count())) {
    free = Time(kLongest);
    fraction = 0;
    return free;
  }
  free += nanoseconds(static_cast<nanoseconds::rep>(whole));
  fraction = passage - whole;
  return free + nanoseconds(fraction > 0 ? 1 : 0);
}

LinkPace::Time LinkPace::free_at() const {
  const LineLock lock(line());
  return line().free + nanoseconds(line().fraction > 0 ? 1 : 0);
}

}  // namespace lockstep
