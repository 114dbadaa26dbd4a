// Rotary embedding goes position by position: the angles of one are worked out once and serve all
// sequences and heads.
//
// Sines and cosines are exact at the first position of each block of kBlock; from one position to
// the next inside a block they turn by the angle of a single step, in double, which costs two
// products each. Blocks are fixed, so that results do not depend on the number of threads, nor on
// the position that a call begins with.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/elementwise/elementwise.h"
#include "lockstep/ops/cpu/elementwise/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {
namespace {

constexpr std::size_t kBlock = 16;

class Angles {
 public:
  explicit Angles(const ops::Rotary& call)
      : direction_(call.backward ? -1 : 1),
        amplitude_(call.amplitude),
        frequency_(static_cast<std::size_t>(call.head_size / 2)),
        step_cosine_(frequency_),
        step_sine_(frequency_),
        cosine_(frequency_),
        sine_(frequency_),
        cosines_(frequency_.size()),
        sines_(frequency_.size()) {
    for (std::size_t i = 0; i < frequency_.size(); ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(call.head_size);
      const double frequency = std::pow(static_cast<double>(call.theta), exponent);
      const double slowing = ops::is_given(call.slowing) ? call.slowing.as<const float>()[i] : 1;
      frequency_[i] = direction_ * ops::scaled_frequency(frequency, call.scaling) / slowing;
      step_cosine_[i] = std::cos(frequency_[i]);
      step_sine_[i] = std::sin(frequency_[i]);
    }
  }

  // Goes to a position, by way of the first of its block.
  void begin(std::size_t position) {
    begin_block(position / kBlock * kBlock);
    for (std::size_t i = 0; i < position % kBlock; ++i) turn();
    round();
  }

  void next(std::size_t position) {
    if (position % kBlock == 0) {
      begin_block(position);
    } else {
      turn();
    }
    round();
  }

  const float* cosines() const { return cosines_.data(); }
  const float* sines() const { return sines_.data(); }

 private:
  void begin_block(std::size_t position) {
    for (std::size_t i = 0; i < frequency_.size(); ++i) {
      cosine_[i] = std::cos(static_cast<double>(position) * frequency_[i]);
      sine_[i] = std::sin(static_cast<double>(position) * frequency_[i]);
    }
  }

  void turn() {
    for (std::size_t i = 0; i < frequency_.size(); ++i) {
      const double c = cosine_[i] * step_cosine_[i] - sine_[i] * step_sine_[i];
      sine_[i] = sine_[i] * step_cosine_[i] + cosine_[i] * step_sine_[i];
      cosine_[i] = c;
    }
  }

  void round() {
    for (std::size_t i = 0; i < frequency_.size(); ++i) {
      cosines_[i] = static_cast<float>(amplitude_ * cosine_[i]);
      sines_[i] = static_cast<float>(amplitude_ * sine_[i]);
    }
  }

  double direction_;
  double amplitude_;
  std::vector<double> frequency_, step_cosine_, step_sine_, cosine_, sine_;
  std::vector<float> cosines_, sines_;
};

}  // namespace

void run(const Cpu& cpu, const ops::Rotary& call) {
  ops::check(call);
  const Tensor& x = call.x.rows;
  const auto kernel = elementwise_kernels(cpu.isa).rotary[x.dtype()];
  const auto rows = static_cast<std::size_t>(x.shape()[0]);
  const std::size_t size = size_of(x.dtype());
  const std::size_t row_bytes = static_cast<std::size_t>(x.shape()[1]) * size;
  const std::size_t first_byte = static_cast<std::size_t>(call.x.first) * size;
  const auto sequence = static_cast<std::size_t>(call.sequence);
  const auto first = static_cast<std::size_t>(call.first_position);
  const auto heads = static_cast<std::size_t>(call.heads);
  const auto half = static_cast<std::size_t>(call.head_size / 2);
  const auto stride = static_cast<std::size_t>(call.stride > 0 ? call.stride : call.head_size);
  const std::size_t positions = std::min(rows, sequence);
  split(cpu.team, positions, kBlock, rows * heads * half * 4 * size, [&](Range range) {
    Angles angles(call);
    for (std::size_t position = range.begin; position < range.end; ++position) {
      if (position == range.begin) {
        angles.begin(first + position);
      } else {
        angles.next(first + position);
      }
      for (std::size_t row = position; row < rows; row += sequence) {
        kernel(x.data() + row * row_bytes + first_byte, angles.cosines(), angles.sines(), heads,
               stride, half);
      }
    }
  });
}

}  // namespace lockstep::cpu
