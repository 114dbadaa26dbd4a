// Attention of the one query that a sequence has while text is generated: keys and values are read
// once, where they lie, and widened on the way. Part of attention's kernels.
#pragma once

#include "lockstep/base/simd/sums.inl"
#include "lockstep/ops/cpu/attention/forward.inl"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

using namespace simd;

template <class T>
class AttentionRow {
 public:
  AttentionRow(const AttentionCall& call, std::size_t sequence, std::size_t head,
               const RowWorkspace& workspace)
      : call_(call),
        workspace_(workspace),
        row_(sequence * call.heads + head),
        head_(head),
        first_(call.window > 0 && call.keys > call.window ? call.keys - call.window : 0),
        count_(call.keys - first_),
        query_(call.q, head, call.head_size, sequence),
        out_(call.out, head, call.head_size, sequence),
        keys_(call.k, head / call.group, call.head_size, sequence * call.keys + first_),
        values_(call.v, head / call.group, call.head_size, sequence * call.keys + first_),
        mask_(call.key_mask == nullptr ? nullptr : call.key_mask + sequence * call.keys + first_) {}

  void run() {
    for_vectors(call_.head_size, [&](std::size_t i, auto part) {
      store_some(workspace_.query + i, load_some(query_.row(0) + i, part) * call_.scale, part);
    });
    for (std::size_t key = 0; key < count_; ++key) {
      prefetch_ahead(keys_, key);
      workspace_.scores[key] = mask_ == nullptr || mask_[key] != 0 ? score(key) : -kInfinity;
    }
    if (call_.softcap > 0) cap_all();
    if (call_.distances > 0) add_biases();
    const float largest = largest_score();
    const float total = soften_scores(largest == -kInfinity ? 0 : largest);
    call_.log_sum[row_] = largest + __builtin_logf(total);
    write_out(total == 0 ? 0 : 1 / total);
  }

 private:
  // Rows of one head lie far apart, which no hardware foresees.
  void prefetch_ahead(const HeadPart<T>& rows, std::size_t key) const {
    constexpr std::size_t kAhead = 16;
    if (key + kAhead < count_) prefetch(rows.row(key + kAhead), call_.head_size);
  }

  float score(std::size_t key) const {
    const T* row = keys_.row(key);
    return sum_over(call_.head_size, [&](std::size_t i, auto part) {
      return load_some(workspace_.query + i, part) * load_some(row + i, part);
    });
  }

  // But for those that are hidden.
  void cap_all() const {
    for_vectors(count_, [&](std::size_t i, auto part) {
      const Floats score = load_some(workspace_.scores + i, part);
      const Floats capped = soft_cap(score, call_.softcap);
      store_some(workspace_.scores + i, score == splat(-kInfinity) ? score : capped, part);
    });
  }

  // The query is the last of the sequence.
  void add_biases() const {
    const std::size_t farthest = call_.distances / 2;
    const float* bias = call_.bias + head_ * call_.distances;
    for (std::size_t key = 0; key < count_; ++key) {
      const std::size_t away = count_ - 1 - key;
      workspace_.scores[key] += bias[away < farthest ? farthest - away : 0];
    }
  }

  float largest_score() const {
    Floats most = splat(-kInfinity);
    for_vectors(count_, [&](std::size_t i, auto part) {
      Floats scores = load_some(workspace_.scores + i, part);
      for (std::size_t lane = part; lane < kLanes; ++lane) scores[lane] = -kInfinity;
      most = larger(most, scores);
    });
    return max_of_lanes(most);
  }

  // Scores become exp(score - shift); returns their sum.
  float soften_scores(float shift) const {
    return sum_over(count_, [&](std::size_t i, auto part) {
      const Floats weights = exp_of_score(load_some(workspace_.scores + i, part) - shift);
      store_some(workspace_.scores + i, weights, part);
      return first_lanes(weights, part);
    });
  }

  void write_out(float factor) const {
    std::size_t column = 0;
    for (; column + 8 * kLanes <= call_.head_size; column += 8 * kLanes) {
      write_columns<8>(column, kLanes, factor);
    }
    for (; column + 4 * kLanes <= call_.head_size; column += 4 * kLanes) {
      write_columns<4>(column, kLanes, factor);
    }
    for (; column < call_.head_size; column += kLanes) {
      write_columns<1>(column, smaller(kLanes, call_.head_size - column), factor);
    }
  }

  // The sum of weighted values in some columns; `part` elements of each vector count.
  template <std::size_t vectors>
  void write_columns(std::size_t column, std::size_t part, float factor) const {
    Floats sums[vectors] = {};
    for (std::size_t key = 0; key < count_; ++key) {
      prefetch_ahead(values_, key);
      if (mask_ != nullptr && mask_[key] == 0) continue;  // whatever its value is
      const Floats weight = splat(workspace_.scores[key]);
      const T* row = values_.row(key) + column;
#pragma GCC unroll 8
      for (std::size_t v = 0; v < vectors; ++v) {
        // Whole vectors, unless there is but one.
        const Floats value = vectors > 1 ? load(row + v * kLanes) : load_some(row, part);
        sums[v] = fused(weight, value, sums[v]);
      }
    }
    for (std::size_t v = 0; v < vectors; ++v) {
      store_some(out_.row(0) + column + v * kLanes, sums[v] * factor, part);
    }
  }

  const AttentionCall& call_;
  const RowWorkspace& workspace_;
  const std::size_t row_;
  const std::size_t head_;
  const std::size_t first_;  // of the keys in the window, which are numbered from here on
  const std::size_t count_;
  const HeadPart<T> query_, out_, keys_, values_;
  const std::uint8_t* mask_;
};

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
