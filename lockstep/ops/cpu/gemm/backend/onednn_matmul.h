// One kind of product, prepared by oneDNN. Matrices are described as dense: anything else leaves
// the fast implementations.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/ops/cpu/gemm/backend/onednn_library.h"
#include "lockstep/ops/cpu/gemm/product.h"

namespace lockstep::cpu::gemm {

class OnednnMatmul {
 public:
  // Null where oneDNN cannot multiply such matrices. Threads are as many as the calling thread has
  // set.
  static std::unique_ptr<OnednnMatmul> make(const OnednnLibrary& library, dnnl_engine_t engine,
                                            const ProductShape& shape);

  const std::string& implementation() const { return implementation_; }  // "brg:avx512_core"
  std::size_t scratch() const { return scratch_; }
  // Of the activation of a product nothing is done. `scratch` is aligned to 64 bytes.
  void run(dnnl_stream_t stream, const Product& product, std::byte* scratch);

 private:
  struct Argument {
    int index;
    dnnl_memory_desc_t description;
    OnednnHandle<dnnl_memory_t> memory;
  };

  OnednnMatmul(const OnednnLibrary& library, dnnl_engine_t engine,
               OnednnHandle<dnnl_primitive_desc_t> description);
  void add_argument(int index, const dnnl_memory_desc_t& description);
  void prepare();

  const OnednnLibrary& library_;
  dnnl_engine_t engine_;
  OnednnHandle<dnnl_primitive_desc_t> description_;
  OnednnHandle<dnnl_primitive_t> primitive_;  // made when it is first run
  std::vector<Argument> arguments_;
  std::string implementation_;
  std::size_t scratch_ = 0;
};

}  // namespace lockstep::cpu::gemm
