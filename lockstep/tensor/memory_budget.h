// What one holder takes of memory, counted by itself, and refused beyond a limit. Workers that are
// threads of one process have one budget each; and on a machine without a GPU the device tier has
// one and the host tier another, though both are main memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

// Any thread may use it.
class MemoryBudget {
 public:
  // `name` is what errors call it. `limit` in bytes; 0: none.
  explicit MemoryBudget(std::string_view name, std::size_t limit = 0)
      : name_(name), limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Throws Error(kSystem) where the limit would be passed: then nothing is taken.
  void take(std::size_t bytes);
  void give_back(std::size_t bytes) noexcept;

  std::size_t limit() const { return limit_; }
  std::size_t in_use() const;
  std::size_t peak() const;  // the most there were at once

 private:
  const std::string name_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::size_t in_use_ = 0;
  std::size_t peak_ = 0;
};

// Bytes of a budget for as long as this lives: a Buffer's, or memory of another origin (what
// workers of a machine share).
class MemoryClaim {
 public:
  MemoryClaim() = default;
  // No budget: nothing is counted. It outlives the claim. Throws what take() throws.
  MemoryClaim(MemoryBudget* budget, std::size_t bytes);
  ~MemoryClaim();
  MemoryClaim(MemoryClaim&& other) noexcept;
  MemoryClaim& operator=(MemoryClaim&& other) noexcept;

 private:
  MemoryBudget* budget_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep
