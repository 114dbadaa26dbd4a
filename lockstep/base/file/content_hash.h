// A number that stands for a content: XXH3 of 128 bits, as 32 hexadecimal digits. Against damage
// and confusion, not against malice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Of many pieces, as if they were one.
class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void add(std::span<const std::byte> bytes);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  std::string hex() const;  // of what was added so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string content_hash(std::string_view text);

// 64 bits of XXH3, for what stays in this process.
std::uint64_t short_hash(std::span<const std::byte> bytes);

}  // namespace lockstep
