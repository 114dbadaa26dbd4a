#include "lockstep/nn/parameters/initial_values.h"

#include <algorithm>
#include <thread>
#include <type_traits>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/nn/parameters/seed.h"

namespace lockstep::nn {
namespace {

constexpr std::int64_t kPiece = 1 << 14;  // elements

float value_of(const Initial& initial, float normal) {
  return static_cast<float>(initial.mean + initial.stddev * static_cast<double>(normal));
}

// Elements first to first + count, four of which are drawn at once.
void draw(const Initial& initial, std::uint64_t seed, std::int64_t first, std::int64_t count,
          std::vector<float>& values) {
  values.resize(static_cast<std::size_t>(count));
  if (initial.stddev == 0) {
    std::fill(values.begin(), values.end(), value_of(initial, 0));
    return;
  }
  for (std::int64_t i = 0; i < count;) {
    const std::int64_t at = first + i;
    const auto normals = normal_block(seed, 0, static_cast<std::uint64_t>(at / 4));
    for (std::int64_t k = at % 4; k < 4 && i < count; ++k, ++i) {
      values[static_cast<std::size_t>(i)] = value_of(initial, normals[static_cast<std::size_t>(k)]);
    }
  }
}

template <class T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(value);
  if constexpr (std::is_same_v<T, Half>) return to_half(value);
  if constexpr (std::is_same_v<T, float>) return value;
}

template <class T>
void fill_piece(const Tensor& piece, std::span<const float> values) {
  std::vector<T> elements(values.size());
  std::transform(values.begin(), values.end(), elements.begin(), rounded<T>);
  copy(piece, tensor_of(std::span<T>(elements)));
}

void fill_pieces(const Tensor& buffer, const Initial& initial, std::uint64_t seed,
                 std::int64_t origin, std::int64_t first, std::int64_t stride) {
  const auto elements = static_cast<std::int64_t>(buffer.elements());
  std::vector<float> values;
  for (std::int64_t at = first * kPiece; at < elements; at += stride * kPiece) {
    const std::int64_t count = std::min(kPiece, elements - at);
    draw(initial, seed, origin + at, count, values);
    const Tensor piece = buffer.slice(at, count);
    if (buffer.dtype() == DType::kF32) fill_piece<float>(piece, values);
    if (buffer.dtype() == DType::kBF16) fill_piece<BFloat16>(piece, values);
    if (buffer.dtype() == DType::kF16) fill_piece<Half>(piece, values);
  }
}

}  // namespace

void fill_initial(const Tensor& part, const Initial& initial, std::uint64_t seed,
                  std::string_view name, int threads, std::size_t first) {
  const DType dtype = part.dtype();
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    fail(ErrorCode::kInvalidArgument, "parameters are f32, bf16 or f16; '{}' is {}", name,
         lockstep::name(dtype));
  }
  const auto elements = static_cast<std::int64_t>(part.elements());
  const Tensor buffer = part.reshaped({elements});
  const auto origin = static_cast<std::int64_t>(first);
  const std::uint64_t own_seed = seed_for(seed, name);
  const std::int64_t pieces = (elements + kPiece - 1) / kPiece;
  const auto workers = std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(pieces, 1));
  std::vector<std::jthread> others;
  for (std::int64_t worker = 1; worker < workers; ++worker) {
    others.emplace_back(
        [&, worker] { fill_pieces(buffer, initial, own_seed, origin, worker, workers); });
  }
  fill_pieces(buffer, initial, own_seed, origin, 0, workers);
}

}  // namespace lockstep::nn
