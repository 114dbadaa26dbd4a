// cuBLASLt's descriptors of one Product, made once, and what can be done with them: ask for
// algorithms, check one, launch one. Only addresses change from launch to launch.
//
// Algorithms are refused that could break what operations promise, whatever cuBLASLt says of them:
// split-K (k is cut, and the parts are computed side by side) is allowed only where the parts meet
// as f32 in the workspace in a step of their own. Reductions in place use D's type. Nor may k be
// cut where a narrow output has an epilogue: the epilogue then works on sums that were rounded.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ops/cuda/linear/product.h"

namespace lockstep::cuda {

// Throws Error(kSystem) that names what was done and what cuBLASLt says.
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

  // Those that take at most so many bytes of workspace, the one that cuBLASLt expects to be the
  // fastest first; none where it has none.
  std::vector<Algorithm> candidates(std::size_t workspace);
  // The algorithm, where it can compute this product in so many bytes of workspace.
  std::optional<Algorithm> checked(const cublasLtMatmulAlgo_t& algo, std::size_t workspace);

  // The workspace has the bytes that the algorithm needs.
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
