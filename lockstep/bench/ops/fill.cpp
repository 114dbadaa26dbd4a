#include "lockstep/bench/ops/fill.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/element.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kDrawn = 1 << 18;
constexpr std::int64_t kTargetsPerNone = 5;  // every fifth row asks for nothing

double draw(const Fill& how, std::uint64_t seed, std::uint64_t position) {
  const double random = uniform_at(seed, 1, position);
  switch (how.kind) {
    case Fill::Kind::kNormal:
      return how.first + how.second * normal_at(seed, 0, position);
    case Fill::Kind::kUniform:
      return how.first + (how.second - how.first) * random;
    case Fill::Kind::kWide: {
      const double size = std::exp2(how.first + (how.second - how.first) * random);
      return uniform_at(seed, 2, position) < 0.5f ? -size : size;
    }
    case Fill::Kind::kIndices:
      return std::floor(how.first * random);
    case Fill::Kind::kTargets:
      return position % kTargetsPerNone == kTargetsPerNone - 1 ? ops::kNoTarget
                                                               : std::floor(how.first * random);
    case Fill::Kind::kMask:
      return random < how.first ? 1 : 0;
  }
  __builtin_unreachable();
}

Tensor part_of(const Tensor& tensor, std::size_t first, std::size_t count) {
  return {tensor.data() + first * size_of(tensor.dtype()), tensor.dtype(),
          Shape{static_cast<std::int64_t>(count)}, tensor.device()};
}

// Doubles the written beginning until all is written.
void repeat(const Tensor& tensor, std::size_t written) {
  while (written < tensor.elements()) {
    const std::size_t more = std::min(written, tensor.elements() - written);
    copy(part_of(tensor, written, more), part_of(tensor, 0, more));
    written += more;
  }
}

void draw_elements(const Tensor& tensor, const Fill& how, std::uint64_t seed) {
  const auto draw_all = [&](auto convert) {
    using T = decltype(convert(0.0));
    const std::span<T> elements = tensor.as<T>();
    for (std::size_t i = 0; i < elements.size(); ++i) elements[i] = convert(draw(how, seed, i));
  };
  switch (tensor.dtype()) {
    case DType::kI32:
      draw_all([](double x) { return static_cast<std::int32_t>(x); });
      break;
    case DType::kU8:
      draw_all([](double x) { return static_cast<std::uint8_t>(x); });
      break;
    default:
      ops::with_float_type(tensor.dtype(), [&]<class T>(T) {
        draw_all([](double x) { return ops::rounded<T>(x); });
      });
  }
}

}  // namespace

void fill(const Tensor& tensor, const Fill& how, std::uint64_t seed) {
  const std::size_t drawn = std::min(kDrawn, tensor.elements());
  if (drawn == 0) return;
  const Tensor beginning = part_of(tensor, 0, drawn);
  if (tensor.device() == Device{}) {
    draw_elements(beginning, how, seed);
  } else {
    const Buffer here(beginning.bytes());
    const Tensor elements = here.tensor(tensor.dtype(), beginning.shape());
    draw_elements(elements, how, seed);
    copy(beginning, elements);
  }
  repeat(tensor, drawn);
}

}  // namespace lockstep::bench
