// One pass over memory by a fixed number of blocks, which take tiles of kTile elements in turn. A
// tile lies in one segment of the flat buffers; an ordinary step has one segment, all elements.
// Tiles begin at multiples of four elements, so that vectors fit wherever a segment begins, and
// elements of vectors that lie in the segment in part are taken one by one.
//
// The numbers of a step follow from others that may lie on the device, so each block works them out
// in double, once, and rounds them to f32. Arithmetic is that of the CPU, operation by operation
// (ops/cpu/optimizer/optimizer.inl).
#include <algorithm>

#include "lockstep/ops/cuda/device/vector.cuh"
#include "lockstep/ops/cuda/optimizer/optimizer.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPack = 4;
constexpr int kUnroll = 2;
constexpr std::int64_t kTile = kThreads * kPack * kUnroll;
static_assert(kTile == ops::kAdamTile && kPack == ops::kAdamPack);
constexpr int kBlocksEach = 3;  // on a multiprocessor

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

// Finds the segments of tiles that ascend.
class SegmentFinder {
 public:
  __device__ explicit SegmentFinder(const Segments& segments)
      : segments_(segments), segment_(segments.whole), next_tile_(segments.tiles) {
    if (segments.table == nullptr) return;
    segment_ = segments.table[0];
    next_tile_ = segments.table[1].first_tile;
  }

  __device__ const Segment& of(std::int64_t tile) {
    if (tile >= next_tile_) {
      int last = index_ + 1,
          beyond = segments_.count;  // the last one that begins at the tile or before
      while (beyond - last > 1) {
        const int middle = (last + beyond) / 2;
        if (segments_.table[middle].first_tile <= tile) {
          last = middle;
        } else {
          beyond = middle;
        }
      }
      index_ = last;
      segment_ = segments_.table[last];
      next_tile_ = segments_.table[last + 1].first_tile;
    }
    return segment_;
  }

 private:
  const Segments& segments_;
  int index_ = 0;
  Segment segment_;
  std::int64_t next_tile_;
};

// A Step has
//   Numbers                          what its arithmetic needs, and prepare(), which works it out
//   Values<N>, load<N>(i)            N elements of all buffers
//   finish<N>(i, values, numbers)    takes the step and stores
template <class Step>
__global__ void __launch_bounds__(kThreads, kBlocksEach)
    step_kernel(const __grid_constant__ Step step, const __grid_constant__ Segments segments,
                bool vectors) {
  __shared__ typename Step::Numbers shared_numbers;
  if (isnan(step.gradient_scale.get())) return;
  step.prepare(shared_numbers);
  __syncthreads();
  const typename Step::Numbers numbers = shared_numbers;
  const std::int64_t tiles = segments.tile_count();
  SegmentFinder finder(segments);
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const Segment& segment = finder.of(tile);
    const std::int64_t end = segment.first + segment.count;
    const bool decays = segment.decays != 0;
    const std::int64_t own = segment.first - segment.first % kPack +
                             (tile - segment.first_tile) * kTile + threadIdx.x * kPack;
    typename Step::template Values<kPack> values[kUnroll];
    bool whole[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = own + u * kThreads * kPack;
      whole[u] = vectors && i >= segment.first && i + kPack <= end;
      if (whole[u]) values[u] = step.template load<kPack>(i);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i = own + u * kThreads * kPack;
      if (whole[u]) {
        step.template finish<kPack>(i, values[u], numbers, decays);
      } else {
#pragma unroll 1
        for (std::int64_t k = max(i, segment.first); k < min(i + kPack, end); ++k) {
          step.template finish<1>(k, step.template load<1>(k), numbers, decays);
        }
      }
    }
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
      // Where a variance is zero, so is the moment: it has to be divided by something.
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
  const std::int64_t blocks =
      std::min<std::int64_t>(most_tiles, std::int64_t{kBlocksEach} * context.multiprocessors);
  step_kernel<<<static_cast<unsigned>(std::max<std::int64_t>(blocks, 1)), kThreads, 0,
                context.stream>>>(step, segments, vectors);
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
                              .moment = data_of<float>(call.moment),
                              .variance = data_of<float>(call.variance),
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
           vectors && all_allow_packs<float, kPack>(call.moment, call.variance), "adam");
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
