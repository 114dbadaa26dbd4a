#include "lockstep/ops/cpu/gemm/implementation.h"

#include <utility>

#include "lockstep/ops/cpu/gemm/few_rows/few_rows.h"
#include "lockstep/ops/cpu/gemm/onednn.h"
#include "lockstep/ops/cpu/gemm/packed.h"
#include "lockstep/ops/cpu/gemm/tiles/tiled.h"

namespace lockstep::cpu::gemm {
namespace {

class Packed final : public Implementation {
 public:
  explicit Packed(const Cpu& cpu) : cpu_(cpu) {}

  bool accepts(const ProductShape&) override { return true; }
  std::string name(const ProductShape&) override {
    // What is not done in tiles, a CPU with tiles does in vectors.
    return "packed, " + std::string(lockstep::name(base_isa(cpu_.isa)));
  }
  std::size_t scratch(const ProductShape& shape) override { return packed_scratch(cpu_, shape); }
  void run(const Product& product, std::byte* scratch) override {
    run_packed(cpu_, product, scratch);
  }

 private:
  Cpu cpu_;
};

}  // namespace

std::unique_ptr<Implementation> make_packed(const Cpu& cpu) {
  return std::make_unique<Packed>(cpu);
}

std::vector<std::unique_ptr<Implementation>> implementations(const Cpu& cpu) {
  std::vector<std::unique_ptr<Implementation>> all;
  all.push_back(make_few_rows(cpu));
  if (auto tiled = make_tiled(cpu)) all.push_back(std::move(tiled));
  // Who asks for kernels of a lesser instruction set gets these.
  if (cpu.isa == available_isas().front()) {
    if (auto onednn = make_onednn(cpu)) all.push_back(std::move(onednn));
  }
  all.push_back(make_packed(cpu));
  return all;
}

}  // namespace lockstep::cpu::gemm
