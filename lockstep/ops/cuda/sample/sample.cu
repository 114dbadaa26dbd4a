// Two kernels. The first finds the likeliest token of each sequence with many blocks. The second, a
// block for each sequence, draws.
//
// A logit becomes a key, a 32-bit number in the same order. Nothing is sorted: a walk goes down the
// keys from the largest until a sum (of counts for top-k, of weights for top-p and the draw)
// reaches a target. It takes four passes over the logits. Each pass finds one byte of the key, from
// sums by this byte over the keys with the bytes found so far. Sums are integers (ops/sampler.h),
// so the order of additions does not matter.
//
// Among tokens with the last key, smaller ids come first.
#include <algorithm>
#include <cstdint>

#include "lockstep/base/math/counter_rng.h"
#include "lockstep/ops/cuda/device/overlap.cuh"
#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/sample/sample.h"
#include "lockstep/ops/sampler.h"

namespace lockstep::cuda {
namespace {

using Word = unsigned long long;

constexpr int kBestThreads = 256;
constexpr int kThreads = 1024;
constexpr int kDigits = 256;
constexpr int kMostParts = 64;
constexpr Word kUnsound = ~Word{0};  // above every pair of key and token

template <class T>
struct Call {
  const T* logits;
  std::int64_t classes;
  int choices;
  double factor;       // 1 / temperature
  std::int64_t top_k;  // 0: all
  double top_p;
  bool draws;  // else the likeliest
  const std::int64_t* seeds;
  std::int32_t* positions;
  std::int32_t* lengths;  // may be null
  std::int32_t last_length;
  std::int32_t* tokens;
  Word* best;  // [batch, parts]
  int parts;
};

// The same order as the numbers', with -0 as 0.
__device__ __forceinline__ std::uint32_t key_of(float logit) {
  const std::uint32_t bits = __float_as_uint(logit + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float logit_of(std::uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7fffffffu : ~key);
}

__device__ __forceinline__ Word word_max(Word a, Word b) { return a > b ? a : b; }

// The same in every thread; `partials` has a word for each warp.
__device__ __forceinline__ Word block_max(Word x, Word* partials) {
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    x = word_max(x, __shfl_xor_sync(kAllLanes, x, apart));
  }
  __syncthreads();
  if (lane == 0) partials[warp] = x;
  __syncthreads();
  x = partials[lane < warps ? lane : 0];
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    x = word_max(x, __shfl_xor_sync(kAllLanes, x, apart));
  }
  return x;
}

// Key and token, so that of equal keys the first token is largest.
template <class T>
__global__ void __launch_bounds__(kBestThreads) best_kernel(Call<T> call) {
  __shared__ Word partials[kBestThreads / 32];
  start_next();
  wait_for_previous();
  const T* row = call.logits + static_cast<std::int64_t>(blockIdx.y) * call.classes;
  Word best = 0;
  for (int i = static_cast<int>(blockIdx.x * kBestThreads + threadIdx.x); i < call.choices;
       i += static_cast<int>(gridDim.x) * kBestThreads) {
    const float logit = to_float(row[i]);
    const bool sound = logit < INFINITY;  // false for NaN too
    const Word pair = Word{key_of(logit)} << 32 | ~static_cast<std::uint32_t>(i);
    best = word_max(best, sound ? pair : kUnsound);
  }
  best = block_max(best, partials);
  if (threadIdx.x == 0) call.best[blockIdx.y * gridDim.x + blockIdx.x] = best;
}

// Where a walk ended: the key at which the sum reached the target, and the sum of larger ones.
struct Cut {
  std::uint32_t key;
  Word before;
};

template <class T>
class Row {
 public:
  struct Shared {
    Word digits[kDigits];
    Word partials[kThreads / 32];
    std::uint32_t key;
    Word before;
    int token;
  };

  __device__ Row(const Call<T>& call, Shared& shared, const T* logits, float largest)
      : call_(call), shared_(shared), logits_(logits), largest_(largest) {}

  __device__ std::uint32_t key(int token) const { return key_of(to_float(logits_[token])); }
  __device__ Word weight(std::uint32_t key) const {
    return ops::weight_of(logit_of(key), largest_, call_.factor);
  }

  // Down from the largest key, over those that are not below `floor`, until the sum of
  // measure(key) reaches the target, which is 1 or more and no more than the sum of all.
  template <class Measure>
  __device__ Cut walk(std::uint32_t floor, Word target, Measure&& measure) {
    std::uint32_t found = 0;
    Word before = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int i = static_cast<int>(threadIdx.x); i < kDigits; i += kThreads) {
        shared_.digits[i] = 0;
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < call_.choices; i += kThreads) {
        const std::uint32_t one = key(i);
        if (one < floor || (std::uint64_t{one} ^ found) >> (shift + 8) != 0) continue;
        const Word sum = measure(one);
        if (sum != 0) atomicAdd(&shared_.digits[one >> shift & 0xffu], sum);
      }
      __syncthreads();
      if (threadIdx.x < 32) find_digit(found, before, shift, target);
      __syncthreads();
      found = shared_.key;
      before = shared_.before;
      __syncthreads();
    }
    return {found, before};
  }

  // The sum of measure(key) over all that are not below `floor`.
  template <class Measure>
  __device__ Word sum(std::uint32_t floor, Measure&& measure) {
    Word mine = 0;
    for (int i = static_cast<int>(threadIdx.x); i < call_.choices; i += kThreads) {
      const std::uint32_t one = key(i);
      if (one >= floor) mine += measure(one);
    }
    return block_sum(mine, shared_.partials);
  }

  // The first token whose sum of measure(key), with all tokens before it, is larger than `place`.
  template <class Measure>
  __device__ int token_at(Word place, Measure&& measure) {
    const int each = (call_.choices + kThreads - 1) / kThreads;
    const int first = min(static_cast<int>(threadIdx.x) * each, call_.choices);
    const int end = min(first + each, call_.choices);
    Word mine = 0;
    for (int i = first; i < end; ++i) mine += measure(key(i));
    Word sum = before_this_thread(mine);
    if (threadIdx.x == 0) shared_.token = 0;
    __syncthreads();
    if (sum <= place && place < sum + mine) {
      for (int i = first; i < end; ++i) {
        sum += measure(key(i));
        if (sum <= place) continue;
        shared_.token = i;
        break;
      }
    }
    __syncthreads();
    return shared_.token;
  }

  // A key that at least `count` keys of the row are not below; count is up to kThreads.
  __device__ std::uint32_t floor_for(Word count) {
    std::uint32_t mine = 0;
    for (int i = static_cast<int>(threadIdx.x); i < call_.choices; i += kThreads) {
      mine = max(mine, key(i));
    }
    // The count-th largest of the threads' largest, bit by bit.
    std::uint32_t floor = 0;
    for (int bit = 31; bit >= 0; --bit) {
      const std::uint32_t higher = floor | 1u << bit;
      if (static_cast<Word>(__syncthreads_count(mine >= higher)) >= count) floor = higher;
    }
    return floor;
  }

 private:
  // By the first warp: each lane has some digits, the first the largest ones.
  __device__ void find_digit(std::uint32_t found, Word before, int shift, Word target) {
    constexpr int kEach = kDigits / 32;
    const int lane = static_cast<int>(threadIdx.x);
    const int largest = kDigits - 1 - lane * kEach;
    Word mine = 0;
    for (int i = 0; i < kEach; ++i) mine += shared_.digits[largest - i];
    Word sum = mine;
#pragma unroll
    for (int apart = 1; apart < 32; apart *= 2) {
      const Word other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(apart));
      if (lane >= apart) sum += other;
    }
    sum += before - mine;  // of all digits before this lane's
    if (sum >= target || sum + mine < target) return;
    int digit = largest;
    while (sum + shared_.digits[digit] < target) sum += shared_.digits[digit--];
    shared_.key = found | static_cast<std::uint32_t>(digit) << shift;
    shared_.before = sum;
  }

  // The sum over threads before this one.
  __device__ Word before_this_thread(Word mine) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Word sum = mine;
#pragma unroll
    for (unsigned apart = 1; apart < 32; apart *= 2) {
      const Word other = __shfl_up_sync(kAllLanes, sum, apart);
      if (lane >= apart) sum += other;
    }
    __syncthreads();
    if (lane == 31) shared_.partials[warp] = sum;
    __syncthreads();
    for (unsigned w = 0; w < warp; ++w) sum += shared_.partials[w];
    return sum - mine;
  }

  const Call<T>& call_;
  Shared& shared_;
  const T* logits_;
  float largest_;
};

__device__ __forceinline__ double uniform(std::uint64_t seed, std::uint64_t position) {
  const RandomWords words = random_block(seed, position, 0);
  const std::uint64_t bits = std::uint64_t{words[1]} << 32 | words[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

template <class T>
__device__ int draw(const Call<T>& call, typename Row<T>::Shared& shared, const T* logits,
                    float largest, double hit) {
  Row<T> row(call, shared, logits, largest);
  const auto weigh = [&](std::uint32_t key) { return row.weight(key); };
  const bool some = call.top_k > 0 && call.top_k < call.choices;
  if (!some && call.top_p >= 1) {  // in order of their numbers
    const Word total = row.sum(0, weigh);
    return row.token_at(ops::place_of(hit, total), weigh);
  }
  std::uint32_t floor = 0;
  Word total = 0;
  if (some) {
    const auto k = static_cast<Word>(call.top_k);
    const std::uint32_t near = k <= kThreads ? row.floor_for(k) : 0;
    const Cut cut = row.walk(near, k, [](std::uint32_t) { return Word{1}; });
    floor = cut.key;
    // Takes as many tokens with the last key as are left.
    const Word above =
        row.sum(floor, [&](std::uint32_t key) { return key > floor ? row.weight(key) : Word{0}; });
    total = above + (k - cut.before) * row.weight(floor);
  } else {
    total = row.sum(0, weigh);
  }
  if (call.top_p < 1) {
    const Word enough = ops::share_of(call.top_p, total);
    const Cut cut = row.walk(floor, enough, weigh);
    const Word each = row.weight(cut.key);
    floor = cut.key;
    total = cut.before + (enough - cut.before + each - 1) / each * each;
  }
  const Word place = ops::place_of(hit, total);
  const Cut cut = row.walk(floor, place + 1, weigh);
  const Word which = (place - cut.before) / row.weight(cut.key);
  return row.token_at(which, [&](std::uint32_t key) { return Word{key == cut.key}; });
}

template <class T>
__global__ void __launch_bounds__(kThreads) choose_kernel(Call<T> call) {
  __shared__ typename Row<T>::Shared shared;
  start_next();
  wait_for_previous();
  const auto sequence = static_cast<std::int64_t>(blockIdx.x);
  const auto thread = static_cast<int>(threadIdx.x);
  const Word* found = call.best + sequence * call.parts;
  const Word best = block_max(thread < call.parts ? found[thread] : Word{0}, shared.partials);
  const auto key = static_cast<std::uint32_t>(best >> 32);
  const bool sound = best != kUnsound && logit_of(key) > -INFINITY;
  std::int32_t token = ops::kNoToken;
  if (sound && call.draws) {
    const double hit = uniform(static_cast<std::uint64_t>(call.seeds[sequence]),
                               static_cast<std::uint64_t>(call.positions[sequence]));
    token = draw(call, shared, call.logits + sequence * call.classes, logit_of(key), hit);
  } else if (sound) {
    token = static_cast<std::int32_t>(~static_cast<std::uint32_t>(best));
  }
  __syncthreads();  // all have read the position
  if (thread != 0) return;
  call.tokens[sequence] = token;
  ++call.positions[sequence];
  if (call.lengths == nullptr) return;
  const std::int32_t length = call.lengths[sequence] + 1;
  call.lengths[sequence] = min(length, call.last_length);
}

}  // namespace

void run(const Context& context, const ops::Sample& call) {
  const std::int64_t batch = call.logits.shape()[0];
  if (batch == 0) return;
  const std::int64_t by_choices = (call.choices + 4 * kBestThreads - 1) / (4 * kBestThreads);
  const std::int64_t by_batch = std::max<std::int64_t>(1, Context::kPartials / batch);
  const std::int64_t parts = std::min<std::int64_t>({by_choices, by_batch, kMostParts});
  with_compute_type(call.logits.dtype(), [&]<class T>(TypeTag<T>) {
    const Call<T> arguments{.logits = data_of<const T>(call.logits),
                            .classes = call.logits.shape()[1],
                            .choices = static_cast<int>(call.choices),
                            .factor = call.temperature > 0 ? 1 / call.temperature : 0,
                            .top_k = call.top_k,
                            .top_p = call.top_p,
                            .draws = call.temperature > 0 && call.top_k != 1,
                            .seeds = data_of<const std::int64_t>(call.seeds),
                            .positions = data_of<std::int32_t>(call.positions),
                            .lengths = data_of<std::int32_t>(call.lengths),
                            .last_length = static_cast<std::int32_t>(call.last_length),
                            .tokens = data_of<std::int32_t>(call.tokens),
                            .best = reinterpret_cast<Word*>(context.partials),
                            .parts = static_cast<int>(parts)};
    launch_overlapped<Call<T>>(context, "sample_best", best_kernel<T>,
                               dim3(static_cast<unsigned>(parts), static_cast<unsigned>(batch)),
                               kBestThreads, 0, arguments);
    launch_overlapped<Call<T>>(context, "sample_choose", choose_kernel<T>,
                               dim3(static_cast<unsigned>(batch)), kThreads, 0, arguments);
  });
}

}  // namespace lockstep::cuda
