// Which memory is symmetric.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

namespace lockstep::hierarchical {

// Thread-safe.
class SymmetricRanges {
 public:
  void add(const std::byte* first, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[first] = bytes;
  }
  void remove(const std::byte* first) {
    const std::lock_guard lock(mutex_);
    ranges_.erase(first);
  }
  // Whether all of it is in one of them. No bytes always are.
  bool hold(const std::byte* first, std::size_t bytes) const {
    if (bytes == 0) return true;
    const std::lock_guard lock(mutex_);
    const auto after = ranges_.upper_bound(first);
    if (after == ranges_.begin()) return false;
    const auto& [begin, size] = *std::prev(after);
    const auto offset = static_cast<std::size_t>(first - begin);
    return offset < size && bytes <= size - offset;
  }

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, std::size_t, std::less<>> ranges_;
};

}  // namespace lockstep::hierarchical
