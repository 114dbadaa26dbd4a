// Counts the memory of one holder and enforces a limit. Workers that are threads of one process
// have separate budgets. Without a GPU, the device tier and the host tier have separate budgets,
// though both are main memory.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>

namespace lockstep {

// Thread-safe.
class MemoryBudget {
 public:
  // `name` appears in errors. `limit` is in bytes; 0: none.
  explicit MemoryBudget(std::string_view name, std::size_t limit = 0)
      : name_(name), limit_(limit) {}
  MemoryBudget(const MemoryBudget&) = delete;
  MemoryBudget& operator=(const MemoryBudget&) = delete;

  // Throws Error(kSystem), and takes nothing, if the limit would be exceeded.
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

// Takes bytes of a budget for its lifetime: those of a Buffer, or of other memory (symmetric
// memory).
class MemoryClaim {
 public:
  MemoryClaim() = default;
  // Without a budget nothing is counted. The budget must outlive the claim. Throws what take()
  // throws.
  MemoryClaim(MemoryBudget* budget, std::size_t bytes);
  ~MemoryClaim();
  MemoryClaim(MemoryClaim&& other) noexcept;
  MemoryClaim& operator=(MemoryClaim&& other) noexcept;

 private:
  MemoryBudget* budget_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace lockstep
