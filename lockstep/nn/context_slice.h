// Context parallelism: which tokens of a sequence one rank has.
//
// The ranks of a context group divide the tokens of every sequence evenly. All of them hold all
// parameters, so to gradients they are workers with other tokens. Only attention reads tokens of
// other ranks, in one of two ways:
//
//   heads   an all-to-all turns some tokens with all heads into all tokens with some heads, and
//           another one turns them back (nn/context_axis.h)
//   ring    keys and values travel around the ranks (nn/parts/ring_attention.h)
//
// The slices of a rank are *runs* of positions. With `balanced` a rank has two: in causal attention
// late tokens see more keys than early ones, so rank r takes slices r and 2c - 1 - r of 2c.
//
//   4 ranks             | 0 0 | 1 1 | 2 2 | 3 3 |
//   4 ranks, balanced   | 0 | 1 | 2 | 3 | 3 | 2 | 1 | 0 |
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::nn {

enum class ContextAttention : std::uint8_t { kHeads, kRing };
std::string_view name(ContextAttention attention);  // "heads", "ring"

// A rank's position in its context group.
struct ContextGroup {
  int size = 1;
  int rank = 0;
  ContextAttention attention = ContextAttention::kHeads;
  bool balanced = false;  // two runs for each rank
  friend bool operator==(const ContextGroup&, const ContextGroup&) = default;
};

// Tokens that follow each other in the sequence and on the rank.
struct TokenRun {
  std::int64_t local = 0;     // the first one's place among those of the rank
  std::int64_t position = 0;  // and in the sequence
  std::int64_t count = 0;
  friend bool operator==(const TokenRun&, const TokenRun&) = default;
};

// How many slices of equal length a sequence has.
int slices_of(const ContextGroup& group);
// The runs of a rank that has `tokens` of a sequence, in ascending order.
std::vector<TokenRun> token_runs(const ContextGroup& group, std::int64_t tokens);

// Copies the rank's tokens of sequences of `width` tokens each, sequence by sequence.
template <class T>
void copy_own_tokens(const ContextGroup& group, std::span<const T> whole, std::int64_t width,
                     std::span<T> own) {
  const std::int64_t tokens = width / group.size;
  const std::vector<TokenRun> runs = token_runs(group, tokens);
  const auto sequences = static_cast<std::int64_t>(whole.size()) / width;
  for (std::int64_t i = 0; i < sequences; ++i) {
    for (const TokenRun& run : runs) {
      for (std::int64_t k = 0; k < run.count; ++k) {
        own[static_cast<std::size_t>(i * tokens + run.local + k)] =
            whole[static_cast<std::size_t>(i * width + run.position + k)];
      }
    }
  }
}

}  // namespace lockstep::nn
