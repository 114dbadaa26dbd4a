// Implementations of matrix products: an ordered list; the first that accepts a product runs it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/ops/cpu/gemm/product.h"
#include "lockstep/ops/cpu/team/cpu.h"

namespace lockstep::cpu::gemm {

class Implementation {
 public:
  virtual ~Implementation() = default;

  // Whether it is fast for such matrices on this CPU.
  virtual bool accepts(const ProductShape& shape) = 0;

  // The other functions are called only for accepted products.
  virtual std::string name(const ProductShape& shape) = 0;  // "packed, neon"
  virtual std::size_t scratch(const ProductShape& shape) = 0;
  virtual void run(const Product& product, std::byte* scratch) = 0;
};

// The packed product (packed.h), which accepts everything.
std::unique_ptr<Implementation> make_packed(const Cpu& cpu);

// All that are built in, best first; the last accepts everything.
std::vector<std::unique_ptr<Implementation>> implementations(const Cpu& cpu);

}  // namespace lockstep::cpu::gemm
