#include "lockstep/bench/memory_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/base/system/resident.h"
#include "lockstep/launch/descendants.h"
#include "lockstep/launch/variables.h"

namespace lockstep::bench {
namespace {

// By the variables that it was started with.
bool is_rank(pid_t process) {
  const std::string key = std::string(kRankVariable) + "=";
  std::ifstream environment(fmt::format("/proc/{}/environ", process));
  for (std::string entry; std::getline(environment, entry, '\0');) {
    if (entry.starts_with(key)) return true;
  }
  return false;
}

void find_ranks_below(pid_t process, std::set<pid_t>& ranks) {
  for (const pid_t child : children_of(process)) {
    if (is_rank(child)) {
      ranks.insert(child);
    } else {
      find_ranks_below(child, ranks);
    }
  }
}

}  // namespace

MemoryWatch::MemoryWatch(int ranks, std::chrono::milliseconds period)
    : ranks_(ranks), thread_([this, period](const std::stop_token& stop) {
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any stopped;
        while (!stopped.wait_for(lock, stop, period, [&] { return stop.stop_requested(); })) {
          sample();
        }
      }) {}

MemoryWatch::Peak MemoryWatch::finish() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  peak_.samples = samples_;
  return peak_;
}

void MemoryWatch::sample() {
  if (take_sample()) ++samples_;
}

bool MemoryWatch::take_sample() {
  if (processes_.size() < static_cast<std::size_t>(ranks_)) {
    find_ranks_below(::getpid(), processes_);
  }
  std::vector<std::size_t> bytes;
  for (const pid_t process : processes_) {
    bytes.push_back(proportional_bytes(process).value_or(0));
  }
  const auto all = [&] { return std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}); };
  const bool seen = all() > 0;
  if (all() <= peak_.all_bytes) return seen;
  // A rank may have unmapped shared pages during the scan. Its sample then counts a share of them,
  // and later samples of other ranks count them whole. So every rank is read once more, and the
  // smaller value counts.
  auto at = bytes.begin();
  for (const pid_t process : processes_) {
    *at = std::min(*at, proportional_bytes(process).value_or(0));
    ++at;
  }
  if (all() <= peak_.all_bytes) return seen;
  peak_.all_bytes = all();
  peak_.fullest_bytes = *std::max_element(bytes.begin(), bytes.end());
  return seen;
}

}  // namespace lockstep::bench
