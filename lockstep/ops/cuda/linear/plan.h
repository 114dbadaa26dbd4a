// cuBLASLt's descriptors of one Product, made once, and what can be done with them: ask for
// algorithms, check one, launch one. Only addresses change from launch to launch.
//
// Algorithms that would break the promises of operations are refused. Split-K computes parts of k
// side by side. It is allowed only if a separate step sums the parts as f32 in the workspace;
// reductions in place use D's type. It is not allowed for a 16-bit output with an epilogue, because
// the epilogue would then work on rounded sums.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ops/cuda/linear/product.h"

namespace lockstep::cuda {

// Throws Error(kSystem) with `what` and cuBLASLt's message.
void check(cublasStatus_t status, const char* what);

struct Algorithm {
  cublasLtMatmulAlgo_t algo{};
  std::size_t workspace = 0;  // the bytes it needs
};

// "cublaslt algo 66 tile 23 stages 35 cluster 3", by the numbers of cublasLt.h.
std::string describe(const cublasLtMatmulAlgo_t& algo);

class Plan {
 public:
  Plan(cublasLtHandle_t handle, const Product& product);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Product& product() const { return product_; }

  // The algorithms that need at most `workspace` bytes, in the order of cuBLASLt's expected speed,
  // the fastest first. May be empty.
  std::vector<Algorithm> candidates(std::size_t workspace);
  // The algorithm if it can compute this product with `workspace` bytes.
  std::optional<Algorithm> checked(const cublasLtMatmulAlgo_t& algo, std::size_t workspace);

  // The workspace must have the bytes that the algorithm needs.
  cublasStatus_t launch(const Algorithm& algorithm, const Operands& operands, void* workspace,
                        cudaStream_t stream);

 private:
  bool allows(const cublasLtMatmulAlgo_t& algo) const;

  cublasLtHandle_t handle_;
  Product product_;
  cublasLtMatmulDescOpaque_t operation_;
  cublasLtMatrixLayoutOpaque_t a_, b_, d_;
};

}  // namespace lockstep::cuda
