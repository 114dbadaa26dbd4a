// The table of what is done with tiles (tiles.h). Part of a file of kernels (vector.inl) that
// says how tiles are multiplied.
#pragma once

#include "lockstep/ops/cpu/gemm/finish.inl"
#include "lockstep/ops/cpu/gemm/tiles/pack.inl"
#include "lockstep/ops/cpu/gemm/tiles/tiles.h"

namespace lockstep::cpu::LOCKSTEP_ISA {
namespace {

// Does what is aside, a part after every few steps: all at once, it would hold up the tiles.
class AsideWork {
 public:
  AsideWork(const gemm::Aside& aside, std::size_t steps) : aside_(aside), steps_(steps) {
    std::size_t lines = 0;
    for (std::size_t i = 0; i < aside.fetch_count; ++i) lines += aside.fetches[i].count;
    lines_per_step_ = steps == 0 ? 0 : (lines + steps - 1) / steps;
  }

  void after_step(std::size_t step) {
    constexpr std::size_t kStepsAtOnce = 4;
    for (std::size_t i = 0; i < lines_per_step_; ++i) fetch_line();
    if ((step + 1) % kStepsAtOnce == 0) finish_rows_up_to(rows() * (step + 1) / steps_);
  }
  void end() { finish_rows_up_to(rows()); }

 private:
  std::size_t rows() const { return aside_.square.place.rows; }

  void fetch_line() {
    if (fetch_ == aside_.fetch_count) return;
    const gemm::Fetch& from = aside_.fetches[fetch_];
    constexpr int kRead = 0,
                  kSecondCache = 2;  // rows that lie far apart would not fit into the first
    __builtin_prefetch(from.first + line_ * from.stride, kRead, kSecondCache);
    if (++line_ < from.count) return;
    line_ = 0;
    ++fetch_;
  }

  void finish_rows_up_to(std::size_t end) {
    if (end == rows_done_) return;
    const gemm::Unfinished& from = aside_.square;
    gemm::Place some = from.place;
    some.row += rows_done_;
    some.rows = end - rows_done_;
    from.finish(*from.product, from.square + rows_done_ * TileKernels::kLines, some);
    rows_done_ = end;
  }

  const gemm::Aside& aside_;
  const std::size_t steps_;
  std::size_t lines_per_step_ = 0;
  std::size_t fetch_ = 0;
  std::size_t line_ = 0;
  std::size_t rows_done_ = 0;
};

template <class Unit>
void multiply_strips(std::size_t steps, const BFloat16* row_strip, const BFloat16* column_strip,
                     float* square, bool add, const gemm::Aside& aside) {
  AsideWork work(aside, steps);
  if (add) {
    Unit::load(square, TileKernels::kLines);
  } else {
    Unit::clear();
  }
  Unit::multiply(steps, row_strip, column_strip, [&](std::size_t step) { work.after_step(step); });
  Unit::store(square, TileKernels::kLines);
  work.end();
}

// What tiles are multiplied with is a Unit (unit_amx.inl, unit_emulated.inl):
//
//   begin(), end()                    as in TileKernels
//   clear(), load(square, stride)     what the sums start from; a row begins every `stride` floats
//   multiply(steps, rows, columns, after_step)   adds two strips to them, step by step, and calls
//                                     after_step(step) while tiles still work on it
//   store(square, stride)             what became of them
template <class Unit>
constexpr TileKernels make_tile_kernels() {
  constexpr std::size_t kVectors = TileKernels::kLines / kLanes;
  return {.begin = Unit::begin,
          .end = Unit::end,
          .pack_rows = pack_strips<false>,
          .pack_columns = pack_strips<true>,
          .multiply = multiply_strips<Unit>,
          .finish_bf16 = finish<kVectors, BFloat16>,
          .finish_f32 = finish<kVectors, float>};
}

}  // namespace
}  // namespace lockstep::cpu::LOCKSTEP_ISA
