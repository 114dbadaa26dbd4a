// A 128-bit XXH3 hash of a content, as 32 hexadecimal digits. Detects damage and mix-ups; it is not
// cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

// Hashes many pieces as if they were concatenated.
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

// 64 bits of XXH3, for hashes that do not leave this process.
std::uint64_t short_hash(std::span<const std::byte> bytes);

}  // namespace lockstep
