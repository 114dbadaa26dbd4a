// A flat hash table from pairs of ids to small values, for the inner loop of BPE.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/data/tokenizer/tokenizer.h"

namespace lockstep::data {

inline std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Linear probing, at most half full. Keys are never removed.
template <class Value>
class PairMap {
 public:
  explicit PairMap(std::size_t expected = 0) { reserve(expected); }

  std::size_t size() const { return size_; }

  const Value* find(std::uint64_t key) const {
    for (std::size_t at = home(key);; at = (at + 1) & mask_) {
      if (slots_[at].key == key) return &slots_[at].value;
      if (slots_[at].key == kEmpty) return nullptr;
    }
  }
  Value* find(std::uint64_t key) {
    return const_cast<Value*>(static_cast<const PairMap&>(*this).find(key));
  }

  // Visits all entries in an unspecified order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const Slot& slot : slots_) {
      if (slot.key != kEmpty) visit(slot.key, slot.value);
    }
  }

  // The value of the key, inserted if there is none. The reference is valid until the next call.
  Value& operator[](std::uint64_t key) {
    if (2 * (size_ + 1) > slots_.size()) reserve(2 * size_ + 1);
    std::size_t at = home(key);
    while (slots_[at].key != key && slots_[at].key != kEmpty) at = (at + 1) & mask_;
    if (slots_[at].key == kEmpty) {
      slots_[at].key = key;
      ++size_;
    }
    return slots_[at].value;
  }

 private:
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};  // ids are not negative
  struct Slot {
    std::uint64_t key = kEmpty;
    Value value{};
  };

  std::size_t home(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> shift_) & mask_;
  }

  void reserve(std::size_t expected) {
    std::vector<Slot> old = std::move(slots_);
    const std::size_t count = std::bit_ceil(2 * expected + 2);
    slots_ = std::vector<Slot>(count);
    mask_ = count - 1;
    shift_ = 64 - std::bit_width(mask_);
    for (Slot& slot : old) {
      if (slot.key == kEmpty) continue;
      std::size_t at = home(slot.key);
      while (slots_[at].key != kEmpty) at = (at + 1) & mask_;
      slots_[at] = std::move(slot);
    }
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
  std::size_t size_ = 0;
};

}  // namespace lockstep::data
