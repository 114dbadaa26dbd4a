#include "lockstep/ops/cpu/attention/workspace.h"

#include <algorithm>
#include <cstdint>

namespace lockstep::cpu {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t rounded_up(std::size_t count, std::size_t to) { return (count + to - 1) / to * to; }

// Hands out floats one after the other; from no memory, only counts them.
class Cursor {
 public:
  explicit Cursor(float* memory) : memory_(memory) {}

  float* take(std::size_t count) {
    float* taken = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += rounded_up(count, kAlignment / sizeof(float));
    return taken;
  }
  std::size_t used() const { return used_; }

 private:
  float* memory_;
  std::size_t used_ = 0;
};

struct Extents {
  std::size_t tiles = 0;
  std::size_t head = 0;
  std::size_t keys = 0;

  Extents(const ops::AttentionShape& shape, int threads)
      : tiles(tiles_per_strip(shape, threads)),
        head(rounded_up(static_cast<std::size_t>(shape.head_size), kAttentionPadding)),
        keys(rounded_up(static_cast<std::size_t>(shape.keys), kAttentionBlock)) {}
};

ForwardWorkspace lay_out_forward(const Extents& extents, Cursor& cursor) {
  const std::size_t matrix = kAttentionBlock * extents.head;
  const std::size_t square = kAttentionBlock * kAttentionBlock;
  return {.tiles = extents.tiles,
          .head = extents.head,
          .queries_transposed = cursor.take(extents.tiles * matrix),
          .sums = cursor.take(extents.tiles * matrix),
          .largest = cursor.take(extents.tiles * kAttentionBlock),
          .totals = cursor.take(extents.tiles * kAttentionBlock),
          .rescale = cursor.take(kAttentionBlock),
          .keys = cursor.take(matrix),
          .values = cursor.take(matrix),
          .scores = cursor.take(square),
          .kept = cursor.take(square),
          .packed = cursor.take(2 * square)};
}

RowWorkspace lay_out_row(const Extents& extents, Cursor& cursor) {
  return {.query = cursor.take(extents.head), .scores = cursor.take(extents.keys)};
}

BackwardWorkspace lay_out_backward(const Extents& extents, Cursor& cursor) {
  const std::size_t matrix = kAttentionBlock * extents.head;
  const std::size_t square = kAttentionBlock * kAttentionBlock;
  return {.tiles = extents.tiles,
          .head = extents.head,
          .queries = cursor.take(extents.tiles * matrix),
          .queries_transposed = cursor.take(extents.tiles * matrix),
          .dout = cursor.take(extents.tiles * matrix),
          .dout_transposed = cursor.take(extents.tiles * matrix),
          .dqueries = cursor.take(extents.tiles * matrix),
          .log_sums = cursor.take(extents.tiles * kAttentionBlock),
          .expected = cursor.take(extents.tiles * kAttentionBlock),
          .keys = cursor.take(matrix),
          .values = cursor.take(matrix),
          .scores = cursor.take(square),
          .dscores = cursor.take(square),
          .kept = cursor.take(square),
          .packed = cursor.take(2 * square),
          .dkeys = cursor.take(extents.keys * extents.head),
          .dvalues = cursor.take(extents.keys * extents.head)};
}

// Floats that each thread has.
std::size_t share_of_thread(const Extents& extents) {
  Cursor forward(nullptr), row(nullptr), backward(nullptr);
  lay_out_forward(extents, forward);
  lay_out_row(extents, row);
  lay_out_backward(extents, backward);
  return std::max({forward.used(), row.used(), backward.used()});
}

// Of the bias's gradient, for every tile of queries of every head.
std::size_t dbias_elements(const ops::AttentionShape& shape) {
  return static_cast<std::size_t>(shape.batch * shape.heads * shape.distances) *
         tiles_of_queries(shape);
}

// Behind the last thread's share is what all threads have together.
Cursor cursor_of(const Extents& extents, int thread, std::byte* scratch) {
  const auto address = reinterpret_cast<std::uintptr_t>(scratch);
  std::byte* aligned = scratch + (rounded_up(address, kAlignment) - address);
  return Cursor(reinterpret_cast<float*>(aligned) +
                static_cast<std::size_t>(thread) * share_of_thread(extents));
}

}  // namespace

std::size_t tiles_per_strip(const ops::AttentionShape& shape, int threads) {
  constexpr std::size_t kMost = 16;
  constexpr std::size_t kStripsPerThread = 4;  // so that uneven strips still end together
  const auto heads = static_cast<std::size_t>(shape.batch * shape.heads);
  const std::size_t tiles = tiles_of_queries(shape);
  const std::size_t strips = kStripsPerThread * static_cast<std::size_t>(threads);
  return std::clamp(heads * tiles / strips, std::size_t{1}, kMost);
}

std::size_t tiles_of_queries(const ops::AttentionShape& shape) {
  return (static_cast<std::size_t>(shape.queries) + kAttentionBlock - 1) / kAttentionBlock;
}

std::size_t workspace_bytes(const ops::AttentionShape& shape, int threads) {
  const std::size_t floats =
      share_of_thread({shape, threads}) * static_cast<std::size_t>(threads) + dbias_elements(shape);
  return floats * sizeof(float) + kAlignment - 1;
}

float* dbias_workspace(const ops::AttentionShape& shape, int threads, std::byte* scratch) {
  return cursor_of({shape, threads}, threads, scratch).take(dbias_elements(shape));
}

ForwardWorkspace forward_workspace(const ops::AttentionShape& shape, int threads, int thread,
                                   std::byte* scratch) {
  const Extents extents(shape, threads);
  Cursor cursor = cursor_of(extents, thread, scratch);
  return lay_out_forward(extents, cursor);
}

RowWorkspace row_workspace(const ops::AttentionShape& shape, int threads, int thread,
                           std::byte* scratch) {
  const Extents extents(shape, threads);
  Cursor cursor = cursor_of(extents, thread, scratch);
  return lay_out_row(extents, cursor);
}

BackwardWorkspace backward_workspace(const ops::AttentionShape& shape, int threads, int thread,
                                     std::byte* scratch) {
  const Extents extents(shape, threads);
  Cursor cursor = cursor_of(extents, thread, scratch);
  return lay_out_backward(extents, cursor);
}

}  // namespace lockstep::cpu
