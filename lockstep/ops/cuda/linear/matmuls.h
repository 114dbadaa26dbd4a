// Products of matrices by cuBLASLt, each by the algorithm that is the fastest for it on this GPU.
//
// What a Product needs is prepared at its first run and used again from then on. Its algorithm is
// the one that a file of earlier runs names (algorithm_file.h), or else the fastest of those that
// cuBLASLt proposes, which are timed (tuning.h). While the stream is captured into a graph nothing
// can be timed, and cuBLASLt's first proposal is taken. Whatever was taken stays, so a process
// computes the same product by the same algorithm always.
//
// LOCKSTEP_TUNE=0 in the environment: neither times nor reads the file, and takes cuBLASLt's first
// proposal. LOCKSTEP_CUBLASLT=0: does without cuBLASLt.
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
  // What the context's workspace has at least, whatever the product; NVIDIA's advice for Hopper.
  static constexpr std::size_t kWorkspace = std::size_t{32} << 20;

  explicit Matmuls(const Context& context);
  ~Matmuls();
  Matmuls(const Matmuls&) = delete;
  Matmuls& operator=(const Matmuls&) = delete;

  // Queues the product. False where cuBLASLt has no algorithm for it; nothing is queued then.
  bool run(const Context& context, const Product& product, const Operands& operands);

  // How long the product takes by its algorithm; 0 where it was not timed. Prepares it like run().
  double microseconds(const Context& context, const Product& product, const Operands& operands);

  // What runs such a product, whatever its epilogue and addresses; what probably will, before one
  // was run.
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
