#include "lockstep/ops/cuda/graph.h"

#include "lockstep/ops/cuda/cuda_ops.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

class CapturedGraph final : public CapturedStep {
 public:
  CapturedGraph(CudaOps& ops, cudaGraph_t graph, bool may_fault)
      : ops_(ops), may_fault_(may_fault) {
    check(cudaGraphGetNodes(graph, nullptr, &nodes_), "counting the nodes of a graph");
    check(cudaGraphInstantiate(&executable_, graph, 0), "preparing a captured step");
  }
  ~CapturedGraph() override {
    cudaStreamSynchronize(ops_.stream());  // it may still run
    cudaGraphExecDestroy(executable_);
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  void launch() override { ops_.launch(executable_, may_fault_); }
  std::size_t nodes() const override { return nodes_; }

 private:
  CudaOps& ops_;
  const bool may_fault_;
  cudaGraphExec_t executable_ = nullptr;
  std::size_t nodes_ = 0;
};

}  // namespace

std::unique_ptr<CapturedStep> make_captured_step(CudaOps& ops, cudaGraph_t graph, bool may_fault) {
  const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> owned(graph, cudaGraphDestroy);
  return std::make_unique<CapturedGraph>(ops, graph, may_fault);
}

}  // namespace lockstep::cuda
