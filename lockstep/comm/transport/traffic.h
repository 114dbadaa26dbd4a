// Counts the bytes that a rank has sent, and those of them to other nodes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::transport {

// One thread adds at a time; any thread may read.
class Traffic {
 public:
  // `is_far[r]`: whether rank r is on another node.
  explicit Traffic(std::vector<bool> is_far) : is_far_(std::move(is_far)) {}

  // Counts `bytes` of payload sent to a rank.
  void add(int rank, std::size_t bytes) {
    sent_.fetch_add(bytes, std::memory_order_relaxed);
    if (is_far_[static_cast<std::size_t>(rank)]) {
      across_.fetch_add(bytes, std::memory_order_relaxed);
    }
  }
  // The same to ranks of this node, through memory that they share.
  void add_shared(std::uint64_t bytes) { sent_.fetch_add(bytes, std::memory_order_relaxed); }

  std::uint64_t sent() const { return sent_.load(std::memory_order_relaxed); }
  std::uint64_t across() const { return across_.load(std::memory_order_relaxed); }

 private:
  std::vector<bool> is_far_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> across_{0};
};

}  // namespace lockstep::transport
