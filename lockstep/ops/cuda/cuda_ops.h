// Ops on one GPU: checks a call, then queues it on the CUDA stream of the Ops.
//
// Inside a task of another Stream, operations begin after earlier work of the task, and later work
// of the task begins after them. They still run on the stream of the Ops, so that one operation at
// a time uses the workspace.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>
#include <thread>

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/cuda/faults.h"
#include "lockstep/ops/cuda/linear/linear.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/cuda/current_stream.h"

namespace lockstep::cuda {

class CudaOps final : public Ops {
 public:
  explicit CudaOps(int index);
  ~CudaOps() override;

  std::string name() const override { return name_; }
  Device device() const override { return {DeviceKind::kCuda, context_.device}; }
  cudaStream_t stream() const { return context_.stream; }

  void run(const ops::Linear& call) override;
  void run(const ops::LinearActivation& call) override;
  void run(const ops::LinearBackwardInput& call) override;
  void run(const ops::LinearBackwardWeight& call) override;
  void run(const ops::Activate& call) override;
  void run(const ops::Multiply& call) override;
  void run(const ops::Add& call) override;
  void run(const ops::SwiGlu& call) override;
  void run(const ops::SwiGluBackward& call) override;
  void run(const ops::Drop& call) override;
  void run(const ops::Cast& call) override;
  void run(const ops::Scale& call) override;
  void run(const ops::SoftCap& call) override;
  void run(const ops::Norm& call) override;
  void run(const ops::NormBackward& call) override;
  void run(const ops::Embedding& call) override;
  void run(const ops::EmbeddingBackward& call) override;
  void run(const ops::Attention& call) override;
  void run(const ops::AttentionBackward& call) override;
  void run(const ops::Rotary& call) override;
  void run(const ops::LogitStatistics& call) override;
  void run(const ops::CrossEntropy& call) override;
  void run(const ops::SquaredError& call) override;
  void run(const ops::Adam& call) override;
  void run(const ops::Sgd& call) override;
  void run(const ops::SumOfSquares& call) override;
  void run(const ops::AdamSegments& call) override;
  void run(const ops::ChunkedSumOfSquares& call) override;
  void run(const ops::ClipScale& call) override;
  void run(const ops::DecodeAttention& call) override;
  void run(const ops::Sample& call) override;
  void run(const ops::Quantize& call) override;
  void run(const ops::ScaledMatmul& call) override;
  void run(const ops::UpdateScaling& call) override;
  void run(const ops::MergeAttention& call) override;
  void run(const ops::CopyColumns& call) override;
  void run(const ops::HeadNorm& call) override;
  void run(const ops::HeadNormBackward& call) override;
  void run(const ops::Route& call) override;
  void run(const ops::RouteBackward& call) override;
  void run(const ops::GatherTokens& call) override;
  void run(const ops::CombineTokens& call) override;
  void run(const ops::WeightRows& call) override;
  void run(const ops::AddCounts& call) override;
  void run(const ops::CountTargets& call) override;
  void run(const ops::BalanceExperts& call) override;
  void run(const ops::RelativeBias& call) override;
  void run(const ops::RelativeBiasBackward& call) override;

  std::size_t scratch(const LinearShape& shape) const override;
  std::size_t scratch(const ops::AttentionShape& shape) const override;
  std::size_t decode_attention_scratch(const ops::AttentionShape& shape) const override;
  std::size_t norm_scratch(std::int64_t rows, std::int64_t width) const override;
  std::size_t embedding_scratch(std::int64_t rows, std::int64_t width,
                                std::int64_t classes) const override;
  void use_scratch(const Tensor& memory) override;
  bool differentiates_from_input(ops::Activation activation) const override {
    return activation == ops::Activation::kGeluTanh;
  }
  std::string implementation(const LinearShape& shape, LinearPass pass) const override;
  std::string chosen_algorithms() const override { return linear_.chosen_algorithms(); }

  void synchronize() override;
  Event record() override;
  void wait(const Event& event) override;
  Moment moment() override;
  void in_order(const std::function<void()>& task) override;

  bool can_capture() const override { return true; }
  void begin_capture() override;
  std::unique_ptr<CapturedStep> end_capture() override;

  // For a CapturedStep: queues its graph. `may_fault`: it has operations that look up indices.
  void launch(cudaGraphExec_t graph, bool may_fault);

 private:
  // Calls work(), which queues on the stream of the Ops, in order with the work of the calling
  // thread's task.
  template <class Work>
  void queue(Work&& work);
  template <class Call>
  void check(const Call& call) const;
  template <class Call>
  void check_and_run(const Call& call);
  template <class Call>
  void run_checked(const Call& call);
  template <class Call>
  void check_and_run_linear(const Call& call);
  // Makes work that is queued on `later` from now on wait for all work queued on `earlier`.
  void follow(cudaStream_t later, cudaStream_t earlier);
  void refuse_while_capturing(const char* what) const;

  OperationStream stream_;
  FaultWords faults_;
  cudaEvent_t turn_ = nullptr;
  Context context_;
  std::string name_;
  LinearLayers linear_;

  // While a step is captured: its thread's copies and fills belong to it.
  std::unique_ptr<CurrentStream> capture_;
  std::thread::id capturing_thread_;
  bool captured_may_fault_ = false;
};

}  // namespace lockstep::cuda
