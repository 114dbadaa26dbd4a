// How tiles of queries and blocks of keys come into scratch memory and out of it, and which of the
// keys a query sees. Part of attention's kernels.
#pragma once

#include "lockstep/base/simd/soft_cap.inl"
#include "lockstep/ops/cpu/attention/product.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

constexpr float kInfinity = __builtin_inff();

constexpr std::size_t smaller(std::size_t a, std::size_t b) { return a < b ? a : b; }
constexpr std::size_t padded(std::size_t count) {
  return (count + kAttentionPadding - 1) / kAttentionPadding * kAttentionPadding;
}

// One head's rows of one sequence, from a place of the sequence on.
template <class T>
struct HeadPart {
  T* data = nullptr;
  std::size_t width = 0;

  HeadPart(const HeadRows& rows, std::size_t head, std::size_t head_size, std::size_t row)
      : data(reinterpret_cast<T*>(rows.data) + row * rows.width + head * head_size),
        width(rows.width) {}
  T* row(std::size_t index) const { return data + index * width; }
};

// Asks for a row: those of one head lie far apart, which no hardware foresees.
template <class T>
void prefetch(const T* row, std::size_t head_size) {
  constexpr std::size_t kLine = 64 / sizeof(T);
  for (std::size_t at = 0; at < head_size; at += kLine) __builtin_prefetch(row + at, 0, 2);
}

// Rows in f32, times `factor`; a row that `mask` hides, and what is there only by rounding up, is
// zero.
template <class T>
void widen(const HeadPart<T>& from, std::size_t count, const std::size_t head_size, float factor,
           const std::uint8_t* mask, const Matrix& to) {
  constexpr std::size_t kAhead = 8;
  const std::size_t whole_vectors = head_size / kLanes * kLanes;
  for (std::size_t i = 0; i < padded(count); ++i) {
    float* row = to.row(i);
    std::size_t at = 0;
    if (i < count && (mask == nullptr || mask[i] != 0)) {
      const T* source = from.row(i);
      if (i + kAhead < count) prefetch(from.row(i + kAhead), head_size);
      for (; at < whole_vectors; at += kLanes) store(row + at, load(source + at) * factor);
      if (at < head_size) {
        store(row + at, load_part(source + at, head_size - at) * factor);
        at += kLanes;
      }
    }
    for (; at < to.stride; at += kLanes) store(row + at, Floats{});
  }
}

// Asks for part `part` of `parts` of the rows.
template <class T>
void prefetch(const HeadPart<T>& from, std::size_t count, std::size_t head_size, std::size_t parts,
              std::size_t part) {
  for (std::size_t i = count * part / parts; i < count * (part + 1) / parts; ++i) {
    prefetch(from.row(i), head_size);
  }
}

// to[i][j] = from[j][i], of padded(count) rows.
inline void transpose(const Matrix& from, std::size_t count, const Matrix& to) {
  constexpr std::size_t kSide = 4;
  for (std::size_t j = 0; j < padded(count); j += kSide) {
    for (std::size_t i = 0; i < from.stride; i += kSide) {
      float square[kSide][kSide];
      for (std::size_t y = 0; y < kSide; ++y) {
        for (std::size_t x = 0; x < kSide; ++x) square[x][y] = from.row(j + y)[i + x];
      }
      for (std::size_t x = 0; x < kSide; ++x) {
        std::memcpy(to.row(i + x) + j, square[x], sizeof(square[x]));
      }
    }
  }
}

template <class T>
void narrow(const Matrix& from, std::size_t count, std::size_t head_size, float factor,
            const HeadPart<T>& to) {
  for (std::size_t i = 0; i < count; ++i) {
    // By value: what is stored could be any of the pointers.
    for_vectors(head_size,
                [row = to.row(i), source = from.row(i), factor](std::size_t at, auto part) {
                  store_some(row + at, load(source + at) * factor, part);
                });
  }
}

inline void clear(const Matrix& matrix, std::size_t rows) {
  std::memset(matrix.data, 0, rows * matrix.stride * sizeof(float));
}

inline void fill(float* to, std::size_t count, float value) {
  for (std::size_t i = 0; i < count; ++i) to[i] = value;
}

// A block of keys, and which of them are not masked.
struct KeyBlock {
  std::size_t first = 0;
  std::size_t count = 0;
  const std::uint8_t* mask = nullptr;

  KeyBlock(const AttentionCall& call, std::size_t sequence, std::size_t index)
      : first(index * kAttentionBlock), count(smaller(kAttentionBlock, call.keys - first)) {
    if (call.key_mask != nullptr) mask = call.key_mask + sequence * call.keys + first;
  }

  bool any() const {
    if (mask == nullptr) return true;
    for (std::size_t j = 0; j < count; ++j) {
      if (mask[j] != 0) return true;
    }
    return false;
  }
};

// A tile of queries: where it begins in the sequence.
struct Tile {
  std::size_t first = 0;
  std::size_t count = 0;

  Tile(const QueryStrip& strip, std::size_t index)
      : first(strip.first + index * kAttentionBlock),
        count(smaller(kAttentionBlock, strip.count - index * kAttentionBlock)) {}
};
std::size_t tiles_of(const QueryStrip& strip) {
  return (strip.count + kAttentionBlock - 1) / kAttentionBlock;
}

// Blocks of keys that the queries up to and without `query_end` see.
std::size_t key_blocks(const AttentionCall& call, std::size_t query_end) {
  std::size_t keys = call.keys;
  if (call.causal) {
    keys = query_end + call.keys < call.queries
               ? 0
               : smaller(keys, query_end + call.keys - call.queries);
  }
  return (keys + kAttentionBlock - 1) / kAttentionBlock;
}

// The first block of keys that queries from `query_begin` on see: those before are outside of
// their windows.
std::size_t first_key_block(const AttentionCall& call, std::size_t query_begin) {
  if (call.window == 0) return 0;
  const std::size_t end = query_begin + call.keys + 1;  // behind its last key, plus the queries
  const std::size_t unseen = call.queries + call.window;
  return end > unseen ? (end - unseen) / kAttentionBlock : 0;
}

// Query i of a tile sees the keys i + shift - window < j <= i + shift of a block, those of a
// window; without one all keys j <= i + shift. The shift, and the first key that query 0 sees
// (`far`), lie in [-kAttentionBlock, kAttentionBlock]. At the ends no query sees any key, and all
// see all.
struct Sight {
  std::ptrdiff_t shift = kAttentionBlock;
  std::ptrdiff_t far = -static_cast<std::ptrdiff_t>(kAttentionBlock);

  Sight(const AttentionCall& call, const Tile& tile, const KeyBlock& block) {
    if (!call.causal) return;
    const auto whole = [](std::size_t x) { return static_cast<std::ptrdiff_t>(x); };
    const auto within = [](std::ptrdiff_t x) {
      constexpr std::ptrdiff_t kMost = kAttentionBlock;
      return x < -kMost ? -kMost : x > kMost ? kMost : x;
    };
    const std::ptrdiff_t diagonal =
        whole(tile.first) + whole(call.keys) - whole(call.queries) - whole(block.first);
    shift = within(diagonal);
    if (call.window > 0) far = within(diagonal - whole(call.window) + 1);
  }

  bool any(const Tile& tile) const {
    return static_cast<std::ptrdiff_t>(tile.count) + shift > 0 &&
           far < static_cast<std::ptrdiff_t>(kAttentionBlock);
  }
  // The first query that sees key j.
  std::size_t first_query(std::size_t j) const {
    const std::ptrdiff_t first = static_cast<std::ptrdiff_t>(j) - shift;
    return first > 0 ? static_cast<std::size_t>(first) : 0;
  }
  // Behind the last query whose window has key j, at most `queries`.
  std::size_t query_end(std::size_t j, std::size_t queries) const {
    const std::ptrdiff_t end = static_cast<std::ptrdiff_t>(j) - far + 1;
    return end > 0 ? smaller(static_cast<std::size_t>(end), queries) : 0;
  }
  // Behind the last key that query i sees, at most `keys`.
  std::size_t key_end(std::size_t i, std::size_t keys) const {
    const std::ptrdiff_t end = static_cast<std::ptrdiff_t>(i) + shift + 1;
    return end > 0 ? smaller(static_cast<std::size_t>(end), keys) : 0;
  }
};

// A tile that meets a block.
struct Meeting {
  Tile tile;
  KeyBlock block;
  Sight sight;
};

constexpr std::size_t round_down(std::size_t x, std::size_t to) { return x / to * to; }

// Where the rows j to j + kPatchRows of a product of keys by queries begin: at the first query that
// sees one of the keys, or up to a patch before it.
std::size_t first_column(const Sight& sight, std::size_t j) {
  return round_down(sight.first_query(j), kPatchVectors * kLanes);
}

// c[key][query] = left[key] . right[query], the latter transposed. Patches that are hidden as a
// whole are left out.
inline void key_by_query(const Meeting& at, const Matrix& left, const Matrix& right_transposed,
                         const Matrix& c) {
  const std::size_t end = padded(at.tile.count);
  for (std::size_t j = 0; j < at.block.count; j += kPatchRows) {
    multiply_rows<Left::kRows, Start::kZero>(left, right_transposed, c, j,
                                             {first_column(at.sight, j), end}, {0, left.stride});
  }
}

// c[query] = c[query] * factors[query] + the sum over keys of weights[key][query] right[key].
inline void add_over_keys(const Meeting& at, const Matrix& weights, const Matrix& right,
                          const Matrix& c, const float* factors) {
  for (std::size_t i = 0; i < at.tile.count; i += kPatchRows) {
    const std::size_t end = at.sight.key_end(i + kPatchRows - 1, at.block.count);
    multiply_rows<Left::kColumns, Start::kRescaled>(weights, right, c, i, {0, right.stride},
                                                    {0, end}, factors);
  }
}
inline void add_over_keys(const Meeting& at, const Matrix& weights, const Matrix& right,
                          const Matrix& c) {
  for (std::size_t i = 0; i < at.tile.count; i += kPatchRows) {
    const std::size_t end = at.sight.key_end(i + kPatchRows - 1, at.block.count);
    multiply_rows<Left::kColumns, Start::kFormer>(weights, right, c, i, {0, right.stride},
                                                  {0, end});
  }
}

// c[key] += the sum over queries of weights[key][query] right[query].
inline void add_over_queries(const Meeting& at, const Matrix& weights, const Matrix& right,
                             const Matrix& c) {
  for (std::size_t j = 0; j < at.block.count; j += kPatchRows) {
    const std::size_t begin = round_down(at.sight.first_query(j), kLanes);
    multiply_rows<Left::kRows, Start::kFormer>(weights, right, c, j, {0, right.stride},
                                               {begin, padded(at.tile.count)});
  }
}

// Of the scores that key_by_query() has written, before they are hidden.
inline void cap_scores(const Meeting& at, const Matrix& scores, float softcap) {
  if (softcap == 0) return;
  const std::size_t end = padded(at.tile.count);
  for (std::size_t j = 0; j < at.block.count; ++j) {
    float* row = scores.row(j);
    for (std::size_t i = first_column(at.sight, round_down(j, kPatchRows)); i < end; i += kLanes) {
      store(row + i, soft_cap(load(row + i), softcap));
    }
  }
}

// The biases of the distances that a tile and a block have between them, or sums of their
// gradients: key j and query i of them meet at the element last_key - j + i, so that vectors go
// along queries.
class DistanceStrip {
 public:
  static constexpr std::size_t kLastKey = kAttentionBlock - 1;
  static constexpr std::size_t kElements = 2 * kAttentionBlock;

  DistanceStrip(const AttentionCall& call, const Meeting& at)
      : farthest_(static_cast<std::ptrdiff_t>(call.distances / 2)),
        first_(static_cast<std::ptrdiff_t>(at.block.first + kLastKey + call.queries) -
               static_cast<std::ptrdiff_t>(at.tile.first + call.keys)) {}

  void read(const float* bias) {
    for (std::size_t x = 0; x < kElements; ++x) elements_[x] = bias[place(x)];
  }
  void clear() { std::memset(elements_, 0, sizeof(elements_)); }
  void add_to(float* dbias) const {
    for (std::size_t x = 0; x < kElements; ++x) dbias[place(x)] += elements_[x];
  }

  float* of_key(std::size_t j) { return elements_ + kLastKey - j; }

 private:
  // Of an element among all distances.
  std::size_t place(std::size_t x) const {
    const std::ptrdiff_t distance = first_ - static_cast<std::ptrdiff_t>(x);
    const std::ptrdiff_t near = distance < -farthest_  ? -farthest_
                                : distance > farthest_ ? farthest_
                                                       : distance;
    return static_cast<std::size_t>(farthest_ + near);
  }

  std::ptrdiff_t farthest_;
  std::ptrdiff_t first_;  // the distance of the last key from query 0
  float elements_[kElements];
};

// Scaled scores of a head get its bias, before they are hidden: of all queries, or of those that
// key_by_query() has written.
inline void add_bias(const AttentionCall& call, std::size_t head, const Meeting& at,
                     const Matrix& scores) {
  if (call.distances == 0) return;
  DistanceStrip strip(call, at);
  strip.read(call.bias + head * call.distances);
  const std::size_t end = padded(at.tile.count);
  for (std::size_t j = 0; j < at.block.count; ++j) {
    float* row = scores.row(j);
    const float* bias = strip.of_key(j);
    for (std::size_t i = first_column(at.sight, round_down(j, kPatchRows)); i < end; i += kLanes) {
      store(row + i, load(row + i) + load(bias + i));
    }
  }
}

// Where the gradient of the bias of a tile lies.
inline float* dbias_of(const AttentionCall& call, const QueryStrip& strip, const Tile& tile) {
  const std::size_t tiles = (call.queries + kAttentionBlock - 1) / kAttentionBlock;
  const std::size_t head = strip.sequence * call.heads + strip.head;
  return call.dbias_of_tiles + (head * tiles + tile.first / kAttentionBlock) * call.distances;
}

inline void clear_bias_gradient(const AttentionCall& call, const BackwardPart& part,
                                const QueryStrip& strip, const Tile& tile) {
  if (call.distances == 0 || !part.of_queries) return;
  std::memset(dbias_of(call, strip, tile), 0, call.distances * sizeof(float));
}

// Scores of keys that a query does not see become -infinity.
inline void hide(const Meeting& at, const Matrix& scores) {
  const std::size_t queries = padded(at.tile.count);
  for (std::size_t j = 0; j < at.block.count; ++j) {
    const bool masked = at.block.mask != nullptr && at.block.mask[j] == 0;
    const std::size_t hidden = masked ? queries : smaller(at.sight.first_query(j), queries);
    fill(scores.row(j), hidden, -kInfinity);
    const std::size_t end = at.sight.query_end(j, queries);
    fill(scores.row(j) + end, queries - end, -kInfinity);
  }
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
