// Derives seeds: every parameter, block and dropout has its own.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::nn {

// Spreads every bit over all: the finaliser of splitmix64.
constexpr std::uint64_t spread(std::uint64_t bits) {
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
  return bits ^ (bits >> 31);
}

constexpr std::uint64_t seed_for(std::uint64_t seed, std::uint64_t number) {
  return spread(spread(seed + 0x9e3779b97f4a7c15u) ^ number);
}

constexpr std::uint64_t seed_for(std::uint64_t seed, std::string_view purpose) {
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char letter : purpose) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001b3u;
  }
  return seed_for(seed, hash);
}

}  // namespace lockstep::nn
