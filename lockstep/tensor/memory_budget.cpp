#include "lockstep/tensor/memory_budget.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep {

void MemoryBudget::take(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (limit_ > 0 && (in_use_ > limit_ || bytes > limit_ - in_use_)) {
    fail(ErrorCode::kSystem,
         "cannot allocate {} more bytes of the {} tier: {} are in use and the limit is {}; raise "
         "the limit, or move more of the run to another tier (offload.*)",
         bytes, name_, in_use_, limit_);
  }
  in_use_ += bytes;
  peak_ = std::max(peak_, in_use_);
}

void MemoryBudget::give_back(std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  in_use_ -= bytes;
}

std::size_t MemoryBudget::in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::size_t MemoryBudget::peak() const {
  const std::lock_guard lock(mutex_);
  return peak_;
}

MemoryClaim::MemoryClaim(MemoryBudget* budget, std::size_t bytes) : bytes_(bytes) {
  if (budget == nullptr) return;
  budget->take(bytes);
  budget_ = budget;
}

MemoryClaim::~MemoryClaim() {
  if (budget_ != nullptr) budget_->give_back(bytes_);
}

MemoryClaim::MemoryClaim(MemoryClaim&& other) noexcept
    : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}

MemoryClaim& MemoryClaim::operator=(MemoryClaim&& other) noexcept {
  MemoryClaim taken(std::move(other));
  std::swap(budget_, taken.budget_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

}  // namespace lockstep
