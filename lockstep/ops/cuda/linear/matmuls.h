// Products of matrices by cuBLASLt, each with the algorithm that is fastest on this GPU.
//
// The first run of a Product prepares it; later runs reuse that. Its algorithm comes from a file of
// earlier runs (algorithm_file.h). Without an entry there the proposals of cuBLASLt are timed, and
// the fastest is used (tuning.h). While the stream is captured into a graph nothing can be timed,
// and cuBLASLt's first proposal is used. A process never changes the algorithm of a product.
//
// LOCKSTEP_TUNE=0 in the environment disables timing and the file, and uses cuBLASLt's first
// proposal. LOCKSTEP_CUBLASLT=0 disables cuBLASLt.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/linear/algorithm_file.h"
#include "lockstep/ops/cuda/linear/plan.h"
#include "lockstep/ops/cuda/linear/product.h"

namespace lockstep::cuda {

class Matmuls {
 public:
  // The least workspace of a context, for any product; NVIDIA's recommendation for Hopper.
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  explicit Matmuls(const Context& context);
  ~Matmuls();
  Matmuls(const Matmuls&) = delete;
  Matmuls& operator=(const Matmuls&) = delete;

  // Queues the product. False where cuBLASLt has no algorithm for it; nothing is queued then.
  bool run(const Context& context, const Product& product, const Operands& operands);

  // The time of the product with its algorithm; 0 if it was not timed. Prepares the product as
  // run() does.
  double microseconds(const Context& context, const Product& product, const Operands& operands);

  // The algorithm of such a product, whatever its epilogue and addresses. Before the first run it
  // is the likely one.
  std::string implementation(const Product& product) const;
  // A line for every product that was run.
  std::string chosen_algorithms() const;

 private:
  struct Entry;
  Entry& entry(const Context& context, const Product& product, const Operands& operands);
  void choose(Entry& entry, const Context& context, const Operands& operands);

  bool uses_cublaslt_;
  bool tunes_;
  cublasLtHandle_t handle_ = nullptr;
  AlgorithmFile file_;
  std::unordered_map<Product, std::unique_ptr<Entry>, ProductHash> entries_;
};

}  // namespace lockstep::cuda
