// A call of attention as kernels take it: sizes as int, heads as pointers, dropout as a key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/arguments.h"
#include "lockstep/ops/cuda/attention/device.cuh"
#include "lockstep/ops/cuda/device/context.h"

namespace lockstep::cuda::attention {

// ---- element types

// Calls f with a value of the CUDA type of a compute type.
template <class F>
void with_compute_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kBF16:
      return f(__nv_bfloat16{});
    case DType::kF16:
      return f(__half{});
    default:
      return f(float{});
  }
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }

template <class T>
__device__ __forceinline__ T from_float(float x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
  if constexpr (std::is_same_v<T, float>) return x;
}

// ---- sizes and places

struct Sizes {
  int batch = 0;
  int queries = 0;
  int keys = 0;
  int heads = 0;
  int kv_heads = 0;
  int group = 1;  // query heads that share a key head
  int head_size = 0;
  int reach = 0;  // query i attends to keys up to i + reach; not causal: `keys`
  int first = 0;  // and from i + first on; without a window far below 0
};

inline Sizes sizes_of(const ops::AttentionShape& shape) {
  constexpr std::int64_t kFar = 1 << 30;
  const std::int64_t reach = shape.causal ? shape.keys - shape.queries : shape.keys;
  const std::int64_t window = shape.window > 0 && shape.window < kFar ? shape.window : 0;
  return {.batch = static_cast<int>(shape.batch),
          .queries = static_cast<int>(shape.queries),
          .keys = static_cast<int>(shape.keys),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .group = static_cast<int>(shape.heads / shape.kv_heads),
          .head_size = static_cast<int>(shape.head_size),
          .reach = static_cast<int>(reach),
          .first = static_cast<int>(window > 0 ? reach - window + 1 : -kFar)};
}

constexpr int tiles_of(int count, int tile) { return (count + tile - 1) / tile; }

// The number of keys that the queries before `end` attend to; the last query attends to most.
__device__ __forceinline__ int keys_seen(const Sizes& sizes, int end) {
  const int last = (end < sizes.queries ? end : sizes.queries) - 1 + sizes.reach;
  return last < 0 ? 0 : last < sizes.keys ? last + 1 : sizes.keys;
}

// The first key that `query` attends to; later queries attend to none before it.
__host__ __device__ __forceinline__ int first_seen(const Sizes& sizes, int query) {
  const int first = query + sizes.first;
  return first < 0 ? 0 : first;
}

// The number of queries up to the last that attends to a key before `end`.
__device__ __forceinline__ int queries_seeing(const Sizes& sizes, int end) {
  const int queries = end - sizes.first;
  return queries < 0 ? 0 : queries < sizes.queries ? queries : sizes.queries;
}

// Whether the query attends to the key, as far as causality and window decide.
__device__ __forceinline__ bool attends(const Sizes& sizes, int query, int key) {
  return key <= query + sizes.reach && key >= query + sizes.first;
}

// Heads inside wider rows. T is const for inputs.
template <class T>
struct HeadRows {
  T* data = nullptr;        // head 0 of row 0
  std::int64_t stride = 0;  // from a row to the next, in elements

  __device__ __forceinline__ T* at(std::int64_t row, std::int64_t head, int head_size) const {
    return data + row * stride + head * head_size;
  }
};

template <class T>
HeadRows<T> head_rows(const ops::Heads& heads) {
  auto* data = reinterpret_cast<T*>(heads.rows.data());
  if (data == nullptr) return {};
  return {data + heads.first, heads.rows.shape()[1]};
}
template <class T>
HeadRows<T> head_rows(const Tensor& rows) {
  return head_rows<T>(ops::Heads{rows, 0});
}

// Whether every row of every head begins at a multiple of `elements` elements, in memory and in its
// tensor.
inline bool aligned(const ops::Heads& heads, std::int64_t head_size, std::int64_t elements) {
  const auto bytes = static_cast<std::int64_t>(size_of(heads.rows.dtype())) * elements;
  const auto address = static_cast<std::int64_t>(
      reinterpret_cast<std::uintptr_t>(heads.rows.data()) % static_cast<std::uintptr_t>(bytes));
  return address == 0 && heads.first % elements == 0 && head_size % elements == 0 &&
         heads.rows.shape()[1] % elements == 0;
}

// nullptr where there is no mask.
inline const std::uint8_t* mask_of(const Tensor& key_mask) {
  return ops::is_given(key_mask) ? reinterpret_cast<const std::uint8_t*>(key_mask.data()) : nullptr;
}
__device__ __forceinline__ const std::uint8_t* mask_at(const std::uint8_t* mask, const Sizes& sizes,
                                                       int sequence, int key) {
  return mask == nullptr ? nullptr : mask + static_cast<std::int64_t>(sequence) * sizes.keys + key;
}

// The index of a query of a head among all queries; statistics have the same index.
__device__ __forceinline__ std::int64_t query_place(const Sizes& sizes, int sequence, int head,
                                                    int query) {
  return (static_cast<std::int64_t>(sequence) * sizes.heads + head) * sizes.queries + query;
}

// ---- biases by distance

struct DistanceBias {
  const float* data = nullptr;  // [heads, distances]; nullptr: none
  int farthest = 0;             // farther keys have the bias of this distance, before or behind
  int offset = 0;               // query i is at the place of key i + offset

  __host__ __device__ __forceinline__ int distances() const { return 2 * farthest + 1; }
  __device__ __forceinline__ int distance(int query, int key) const { return key - query - offset; }
  // The biases of a head, from that of distance 0 on, and the place of a distance among them.
  __device__ __forceinline__ const float* middle(int head) const {
    return data + static_cast<std::int64_t>(head) * distances() + farthest;
  }
  __device__ __forceinline__ int place(int distance) const {
    return distance < -farthest ? -farthest : distance > farthest ? farthest : distance;
  }
  __device__ __forceinline__ float at(int head, int query, int key) const {
    return __ldg(middle(head) + place(distance(query, key)));
  }
};

inline DistanceBias distance_bias(const ops::AttentionShape& shape, const Tensor& bias) {
  if (shape.distances == 0) return {};
  return {.data = reinterpret_cast<const float*>(bias.data()),
          .farthest = static_cast<int>(shape.distances / 2),
          .offset = static_cast<int>(shape.keys - shape.queries)};
}

// ---- dropout

struct DropoutKey {
  std::uint64_t seed = 0;
  ScalarArg step;
  std::uint64_t first = 0;
  std::uint32_t last_kept = 0;  // keeps an element whose random word is at most this
  float factor = 1;             // what a kept element is multiplied by
  bool given = false;
};

inline DropoutKey dropout_key(const ops::Dropout& dropout) {
  const double keep = 1 - dropout.probability;
  const std::uint64_t limit = keep_limit(keep);
  return {.seed = dropout.seed,
          .step = scalar(dropout.step),
          .first = dropout.first,
          .last_kept = static_cast<std::uint32_t>(limit == 0 ? 0 : limit - 1),
          .factor = limit == 0 ? 0 : static_cast<float>(1 / keep),
          .given = dropout.probability != 0};
}

// Which probabilities of one head of one sequence dropout keeps.
class Keeper {
 public:
  __device__ __forceinline__ Keeper(const DropoutKey& key, const Sizes& sizes, int sequence,
                                    int head)
      : seed_(key.seed),
        step_(static_cast<std::uint64_t>(key.step.get())),
        first_(key.first + static_cast<std::uint64_t>(query_place(sizes, sequence, head, 0)) *
                               static_cast<std::uint64_t>(sizes.keys)),
        last_kept_(key.last_kept),
        keys_(static_cast<std::uint32_t>(sizes.keys)) {}

  __device__ __forceinline__ bool keeps(int query, int key) const {
    const std::uint64_t position = position_of(query, key);
    const RandomWords words = random_block(seed_, step_, position / 4);
    const auto place = static_cast<std::uint32_t>(position % 4);
    const std::uint32_t low = place == 0 ? words[0] : words[1];
    const std::uint32_t high = place == 2 ? words[2] : words[3];
    return (place < 2 ? low : high) <= last_kept_;
  }

  // Whether four keys from a multiple of 4 on use the four words of one random block.
  __device__ __forceinline__ bool in_fours() const { return keys_ % 4 == 0; }

  // Bit i is set where key + i is kept. Requires in_fours() and a key that is a multiple of 4.
  __device__ __forceinline__ std::uint32_t four(int query, int key) const {
    const RandomWords words = random_block(seed_, step_, position_of(query, key) / 4);
    std::uint32_t bits = words[0] <= last_kept_ ? 1 : 0;
    bits |= words[1] <= last_kept_ ? 2 : 0;
    bits |= words[2] <= last_kept_ ? 4 : 0;
    bits |= words[3] <= last_kept_ ? 8 : 0;
    return bits;
  }

 private:
  __device__ __forceinline__ std::uint64_t position_of(int query, int key) const {
    return first_ + static_cast<std::uint64_t>(static_cast<std::uint32_t>(query)) * keys_ +
           static_cast<std::uint32_t>(key);
  }

  std::uint64_t seed_;
  std::uint64_t step_;
  std::uint64_t first_;  // the position of query 0 and key 0
  std::uint32_t last_kept_;
  std::uint32_t keys_;
};

// ---- workspace

constexpr std::size_t kWorkspaceAlignment = 256;
constexpr std::size_t workspace_bytes(std::int64_t elements, std::size_t size) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size;
  return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
}
// Throws where the workspace has fewer bytes than needed.
inline std::byte* workspace(const Context& context, std::size_t needed) {
  if (context.workspace_bytes < needed) check(cudaErrorInvalidValue, "attention's scratch memory");
  return context.workspace;
}

}  // namespace lockstep::cuda::attention
