#include "lockstep/ops/cpu/gemm/onednn.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "lockstep/ops/cpu/elementwise/elementwise.h"
#include "lockstep/ops/cpu/gemm/aligned.h"
#include "lockstep/ops/cpu/gemm/backend/onednn_library.h"
#include "lockstep/ops/cpu/gemm/backend/onednn_matmul.h"

namespace lockstep::cpu::gemm {
namespace {

// Products below this many multiplications end sooner than other threads have begun.
constexpr std::size_t kLeastProducts = std::size_t{64} * 64 * 64;

// oneDNN also has implementations that are slower than ours: f32 in vectors of AVX-512, bf16 by
// converting every element where it is used, or plain loops, which call themselves "gemm:jit" too
// where there is nothing to generate code for.
bool is_fast(Isa isa, DType dtype, std::string_view implementation) {
  const auto has = [&](std::string_view word) {
    return implementation.find(word) != std::string_view::npos;
  };
  if (dtype == DType::kBF16) {
    return (isa == Isa::kAvx512 || isa == Isa::kAmx) && has("brg:") && has("bf16");
  }
  return dtype == DType::kF32 && isa == Isa::kAvx2 && (has("brg:") || has("gemm:jit"));
}

class Onednn final : public Implementation {
 public:
  Onednn(const Cpu& cpu, const OnednnLibrary& library)
      : cpu_(cpu),
        library_(library),
        engine_(nullptr, library.engine_destroy),
        stream_(nullptr, library.stream_destroy) {
    dnnl_engine_t engine = nullptr;
    library_.expect(library_.engine_create(&engine, dnnl_cpu, 0), "find a CPU");
    engine_.reset(engine);
    dnnl_stream_t stream = nullptr;
    library_.expect(library_.stream_create(&stream, engine, dnnl_stream_default_flags),
                    "make a stream");
    stream_.reset(stream);
  }

  bool accepts(const ProductShape& shape) override { return prepared(shape).matmul != nullptr; }

  std::string name(const ProductShape& shape) override {
    return "onednn, " + prepared(shape).matmul->implementation();
  }

  std::size_t scratch(const ProductShape& shape) override {
    return prepared(shape).matmul->scratch() + kAlignment - 1;
  }

  void run(const Product& product, std::byte* scratch) override {
    const Prepared& prepared = this->prepared(product.shape);
    Product own_part = product;  // of the work: the rest is done around it
    if (product.finish.activation && product.finish.z != nullptr) {
      own_part.output = product.finish.z;
    }
    if (prepared.copies_added) {
      copy_to_output(product);
      own_part.shape.added = false;
      own_part.shape.accumulate = true;
    }
    library_.omp_set_num_threads(cpu_.team.size());
    prepared.matmul->run(stream_.get(), own_part, aligned(scratch));
    if (product.finish.activation) activate(product);
  }

 private:
  struct Prepared {
    std::unique_ptr<OnednnMatmul> matmul;  // null where it would be slow
    bool copies_added = false;             // to the output, which then accumulates
  };

  const Prepared& prepared(const ProductShape& shape) {
    const auto known = prepared_.find(shape);
    if (known != prepared_.end()) return known->second;
    Prepared result{.matmul = prepare(shape)};
    if (result.matmul == nullptr && shape.added && !shape.accumulate) {
      ProductShape other = shape;
      other.added = false;
      other.accumulate = true;
      result.matmul = prepare(other);
      result.copies_added = true;
    }
    return prepared_.emplace(shape, std::move(result)).first->second;
  }

  std::unique_ptr<OnednnMatmul> prepare(const ProductShape& shape) {
    if (shape.m * shape.n * shape.k < kLeastProducts) return nullptr;
    library_.omp_set_num_threads(cpu_.team.size());
    auto matmul = OnednnMatmul::make(library_, engine_.get(), shape);
    if (matmul == nullptr || !is_fast(cpu_.isa, shape.dtype, matmul->implementation()))
      return nullptr;
    return matmul;
  }

  void copy_to_output(const Product& product) const {
    const std::size_t bytes = product.shape.m * product.shape.n * size_of(product.shape.output);
    cpu_.team.run([&](int thread) {
      const Range mine = share(bytes, cpu_.team.size(), thread, kAlignment);
      std::memcpy(product.output + mine.begin, product.finish.added + mine.begin, mine.size());
    });
  }

  // z, or the output where there is none, holds the sums, rounded to its type.
  void activate(const Product& product) const {
    const Shape shape{static_cast<std::int64_t>(product.shape.m),
                      static_cast<std::int64_t>(product.shape.n)};
    const Tensor y(product.output, product.shape.output, shape);
    const Tensor z(product.finish.z != nullptr ? product.finish.z : product.output,
                   product.shape.output, shape);
    Tensor derivative;
    if (product.finish.derivative != nullptr) {
      derivative = Tensor(product.finish.derivative, product.shape.output, shape);
    }
    cpu::run(
        cpu_,
        ops::Activate{
            .activation = *product.finish.activation, .z = z, .y = y, .derivative = derivative});
  }

  Cpu cpu_;
  const OnednnLibrary& library_;
  OnednnHandle<dnnl_engine_t> engine_;
  OnednnHandle<dnnl_stream_t> stream_;
  std::map<ProductShape, Prepared> prepared_;
};

}  // namespace

std::unique_ptr<Implementation> make_onednn(const Cpu& cpu) {
  const char* wanted = std::getenv("LOCKSTEP_ONEDNN");
  if (wanted != nullptr && std::string_view(wanted) == "0") return nullptr;
  const OnednnLibrary* library = onednn_library();
  if (library == nullptr) return nullptr;
  return std::make_unique<Onednn>(cpu, *library);
}

}  // namespace lockstep::cpu::gemm
