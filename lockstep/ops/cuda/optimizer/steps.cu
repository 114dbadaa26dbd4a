// One pass over memory, a block for each tile of kTile elements. (Few blocks that take tiles in
// turn reach 10 % less of the memory bandwidth.) A tile is in one segment of the flat buffers; an
// ordinary step has one segment of all elements. Tiles begin at multiples of four elements, so that
// vectors fit wherever a segment begins. Elements of vectors that are only partly in the segment
// are processed one by one.
//
// The numbers of a step depend on others that may be on the device. A separate kernel computes them
// in double and rounds them to f32. Arithmetic is that of the CPU, operation by operation
// (ops/cpu/optimizer/optimizer.inl).
#include <algorithm>

#include "lockstep/ops/cuda/device/reduce.cuh"
#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/optimizer/optimizer.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;
constexpr std::int64_t kTile = kThreads * kPack;
static_assert(kTile == ops::kAdamTile && kPack == ops::kAdamPack);
constexpr int kBlocksEach = 4;  // on a multiprocessor

struct Segment {
  std::int64_t first;
  std::int64_t count;
  std::int64_t first_tile;
  std::int64_t decays;
};
static_assert(sizeof(Segment) == 4 * sizeof(std::int64_t));

constexpr std::int64_t tiles_of(std::int64_t first, std::int64_t count) {
  return count == 0 ? 0 : (first % kPack + count + kTile - 1) / kTile;
}

// Either a table on the device with a last row that closes it, or a single segment.
struct Segments {
  const Segment* table;
  int count;
  Segment whole;
  std::int64_t tiles;  // of `whole`

  __device__ std::int64_t tile_count() const {
    return table != nullptr ? table[count].first_tile : tiles;
  }
};

// The segment of a tile: the last one that begins at the tile or before. The lanes of a warp look
// at 32 places of the table at once.
__device__ __forceinline__ Segment segment_of(const Segments& segments, std::int64_t tile) {
  if (segments.table == nullptr) return segments.whole;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int first = 0, count = segments.count;
  while (count > 1) {
    const int stride = (count + 31) / 32;
    const int place = lane * stride;
    const bool begins = place < count && segments.table[first + place].first_tile <= tile;
    const int last = (31 - __clz(static_cast<int>(__ballot_sync(kAllLanes, begins)))) * stride;
    first += last;
    count = min(stride, count - last);
  }
  return segments.table[first];
}

// A Step has
//   Numbers                          what its arithmetic needs, and prepare(), which works it out
//   Values<N>, load<N>(i)            N elements of all buffers
//   finish<N>(i, values, numbers)    takes the step and stores
template <class Step>
__global__ void prepare_kernel(const __grid_constant__ Step step, typename Step::Numbers* numbers) {
  step.prepare(*numbers);
}

template <class Step>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    step_kernel(const __grid_constant__ Step step, const __grid_constant__ Segments segments,
                const typename Step::Numbers* prepared, bool vectors) {
  const std::int64_t tile = blockIdx.x;
  if (tile >= segments.tile_count()) return;
  const Segment segment = segment_of(segments, tile);
  const std::int64_t end = segment.first + segment.count;
  const bool decays = segment.decays != 0;
  const std::int64_t i = segment.first - segment.first % kPack +
                         (tile - segment.first_tile) * kTile + threadIdx.x * kPack;
  const typename Step::Numbers numbers = *prepared;
  if (isnan(numbers.gradient_scale)) return;
  if (vectors && i >= segment.first && i + kPack <= end) {
    step.template finish<kPack>(i, step.template load<kPack>(i), numbers, decays);
    return;
  }
  for (std::int64_t k = max(i, segment.first); k < min(i + kPack, end); ++k) {
    step.template finish<1>(k, step.template load<1>(k), numbers, decays);
  }
}

// parameter = master, rounded; a Parameter of f32 is none.
template <class Parameter, int N>
__device__ __forceinline__ void store_parameter(Parameter* parameter, std::int64_t i,
                                                const Floats<N>& master) {
  if constexpr (sizeof(Parameter) == 2) store_floats(parameter + i, master);
}

template <class Gradient, class Parameter>
struct AdamStep {
  float* master;
  const Gradient* gradient;
  float* moment;
  float* variance;
  Parameter* parameter;
  ScalarArg rate, step, gradient_scale;
  double beta1, beta2, epsilon, decay;
  bool decoupled;

  struct Numbers {
    float gradient_scale, coupled_decay, beta1, not_beta1, beta2, not_beta2, rate, root, epsilon,
        decay;
  };
  template <int N>
  struct Values {
    Pack<Gradient, N> gradient;
    Pack<float, N> master, moment, variance;
  };

  // Two threads of different warps share the powers, which take longest.
  __device__ void prepare(Numbers& n) const {
    if (threadIdx.x == 0) {
      n.gradient_scale = static_cast<float>(gradient_scale.get());
      n.coupled_decay = static_cast<float>(decoupled ? 0 : decay);
      n.beta1 = static_cast<float>(beta1);
      n.not_beta1 = static_cast<float>(1 - beta1);
      n.beta2 = static_cast<float>(beta2);
      n.not_beta2 = static_cast<float>(1 - beta2);
      n.rate = static_cast<float>(rate.get() / (1 - pow(beta1, step.get())));
      n.decay = static_cast<float>(decoupled ? rate.get() * decay : 0);
    } else if (threadIdx.x == 32) {
      // Where the second moment is zero, so is the first: the divisor must not be zero.
      n.epsilon = static_cast<float>(fmax(epsilon, 1e-30));
      n.root = static_cast<float>(1 / sqrt(1 - pow(beta2, step.get())));
    }
  }

  template <int N>
  __device__ __forceinline__ Values<N> load(std::int64_t i) const {
    return {load_pack<N>(gradient + i), load_pack<N>(master + i), load_pack<N>(moment + i),
            load_pack<N>(variance + i)};
  }

  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Values<N>& values, const Numbers& n,
                                         bool decays) const {
    const Floats<N> gradients = to_floats(values.gradient);
    Floats<N> x = to_floats(values.master), m = to_floats(values.moment),
              v = to_floats(values.variance);
    const float coupled = decays ? n.coupled_decay : 0.0f, decoupled_by = decays ? n.decay : 0.0f;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      float g = __fmul_rn(gradients[e], n.gradient_scale);
      if (coupled != 0) g = __fmaf_rn(x[e], coupled, g);
      m[e] = __fmaf_rn(m[e], n.beta1, __fmul_rn(g, n.not_beta1));
      v[e] = __fmaf_rn(v[e], n.beta2, __fmul_rn(__fmul_rn(g, g), n.not_beta2));
      const float size = __fmaf_rn(__fsqrt_rn(v[e]), n.root, n.epsilon);
      const float direction = __fdiv_rn(__fmul_rn(m[e], n.rate), size);
      x[e] = __fsub_rn(x[e], __fmaf_rn(x[e], decoupled_by, direction));
    }
    store_floats(moment + i, m);
    store_floats(variance + i, v);
    store_floats(master + i, x);
    store_parameter(parameter, i, x);
  }
};

template <class Gradient, class Parameter>
struct SgdStep {
  float* master;
  const Gradient* gradient;
  float* velocity;  // null without momentum
  Parameter* parameter;
  ScalarArg rate, gradient_scale;
  double momentum, decay;

  struct Numbers {
    float gradient_scale, decay, momentum, rate;
  };
  template <int N>
  struct Values {
    Pack<Gradient, N> gradient;
    Pack<float, N> master, velocity;
  };

  __device__ void prepare(Numbers& n) const {
    if (threadIdx.x != 0) return;
    n = {static_cast<float>(gradient_scale.get()), static_cast<float>(decay),
         static_cast<float>(momentum), static_cast<float>(rate.get())};
  }

  template <int N>
  __device__ __forceinline__ Values<N> load(std::int64_t i) const {
    Values<N> values;
    values.gradient = load_pack<N>(gradient + i);
    values.master = load_pack<N>(master + i);
    if (velocity != nullptr) values.velocity = load_pack<N>(velocity + i);
    return values;
  }

  template <int N>
  __device__ __forceinline__ void finish(std::int64_t i, const Values<N>& values, const Numbers& n,
                                         bool /*decays*/) const {
    const Floats<N> gradients = to_floats(values.gradient);
    Floats<N> x = to_floats(values.master), g;
#pragma unroll
    for (int e = 0; e < N; ++e) {
      g[e] = __fmaf_rn(x[e], n.decay, __fmul_rn(gradients[e], n.gradient_scale));
    }
    if (velocity != nullptr) {
      const Floats<N> before = to_floats(values.velocity);
#pragma unroll
      for (int e = 0; e < N; ++e) g[e] = __fmaf_rn(before[e], n.momentum, g[e]);
      store_floats(velocity + i, g);
    }
#pragma unroll
    for (int e = 0; e < N; ++e) x[e] = __fmaf_rn(g[e], -n.rate, x[e]);
    store_floats(master + i, x);
    store_parameter(parameter, i, x);
  }
};

// `most_tiles` may be more than there are.
template <class Step>
void launch(const Context& context, const Step& step, const Segments& segments,
            std::int64_t most_tiles, bool vectors, const char* name) {
  using Numbers = typename Step::Numbers;
  static_assert(sizeof(Numbers) <= Context::kPartials * sizeof(double));
  auto* const numbers = reinterpret_cast<Numbers*>(context.partials);
  prepare_kernel<<<1, 64, 0, context.stream>>>(step, numbers);
  check_launch(name);
  step_kernel<<<static_cast<unsigned>(std::max<std::int64_t>(most_tiles, 1)), kThreads, 0,
                context.stream>>>(step, segments, numbers, vectors);
  check_launch(name);
}

Segments all_of(const Tensor& tensor) {
  const auto count = static_cast<std::int64_t>(tensor.elements());
  return {nullptr, 1, {0, count, 0, 1}, tiles_of(0, count)};
}

// Calls f with the TypeTags of gradient and parameter, and whether vectors fit both and the master.
template <class Call, class F>
void with_step_types(const Call& call, F&& f) {
  const DType parameter = ops::is_given(call.parameter) ? call.parameter.dtype() : DType::kF32;
  with_compute_type(call.gradient.dtype(), [&]<class G>(TypeTag<G> gradient_tag) {
    with_compute_type(parameter, [&]<class P>(TypeTag<P> parameter_tag) {
      const bool vectors = allows_packs<G, kPack>(call.gradient) &&
                           allows_packs<P, kPack>(call.parameter) &&
                           allows_packs<float, kPack>(call.master);
      f(gradient_tag, parameter_tag, vectors);
    });
  });
}

void run_adam(const Context& context, const ops::Adam& call, const Segments& segments,
              std::int64_t most_tiles) {
  with_step_types(call, [&]<class G, class P>(TypeTag<G>, TypeTag<P>, bool vectors) {
    const AdamStep<G, P> step{.master = data_of<float>(call.master),
                              .gradient = data_of<const G>(call.gradient),
                              .moment = data_of<float>(call.first_moment),
                              .variance = data_of<float>(call.second_moment),
                              .parameter = data_of<P>(call.parameter),
                              .rate = scalar(call.rate),
                              .step = scalar(call.step),
                              .gradient_scale = scalar(call.gradient_scale),
                              .beta1 = call.beta1,
                              .beta2 = call.beta2,
                              .epsilon = call.epsilon,
                              .decay = call.decay,
                              .decoupled = call.decoupled};
    launch(context, step, segments, most_tiles,
           vectors && all_allow_packs<float, kPack>(call.first_moment, call.second_moment), "adam");
  });
}

}  // namespace

void run(const Context& context, const ops::Adam& call) {
  if (call.master.elements() == 0) return;
  const Segments all = all_of(call.master);
  run_adam(context, call, all, all.tiles);
}

void run(const Context& context, const ops::AdamSegments& call) {
  const std::int64_t rows = call.table.shape()[0];
  if (call.adam.master.elements() == 0 || rows < 2) return;
  const Segments segments{
      reinterpret_cast<const Segment*>(call.table.data()), static_cast<int>(rows - 1), {}, 0};
  const auto elements = static_cast<std::int64_t>(call.adam.master.elements());
  run_adam(context, call.adam, segments, elements / kTile + 2 * rows);
}

void run(const Context& context, const ops::Sgd& call) {
  if (call.master.elements() == 0) return;
  const Segments all = all_of(call.master);
  with_step_types(call, [&]<class G, class P>(TypeTag<G>, TypeTag<P>, bool vectors) {
    const SgdStep<G, P> step{.master = data_of<float>(call.master),
                             .gradient = data_of<const G>(call.gradient),
                             .velocity = data_of<float>(call.velocity),
                             .parameter = data_of<P>(call.parameter),
                             .rate = scalar(call.rate),
                             .gradient_scale = scalar(call.gradient_scale),
                             .momentum = call.momentum,
                             .decay = call.decay};
    launch(context, step, all, all.tiles, vectors && allows_packs<float, kPack>(call.velocity),
           "sgd");
  });
}

}  // namespace lockstep::cuda
