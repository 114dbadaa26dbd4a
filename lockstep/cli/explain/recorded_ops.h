// An Ops that runs every operation by ops/reference and records what it read and wrote, to draw
// what a block does.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/ops/ops.h"

namespace lockstep::cli {

struct RecordedOp {
  std::string kind;  // "linear"
  Tensor parameter;  // the weight or gain it works with, or its gradient; absent: none
  std::vector<Tensor> reads;
  std::vector<Tensor> writes;
};

class RecordedOps final : public Ops {
 public:
  RecordedOps() : ops_(make_reference_ops()) {}

  // The operations since the last call.
  std::vector<RecordedOp> take() { return std::exchange(recorded_, {}); }

  std::string name() const override { return ops_->name(); }

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
  void run(const ops::Norm& call) override;
  void run(const ops::NormBackward& call) override;
  void run(const ops::HeadNorm& call) override;
  void run(const ops::HeadNormBackward& call) override;
  void run(const ops::Attention& call) override;
  void run(const ops::AttentionBackward& call) override;
  void run(const ops::Rotary& call) override;
  void run(const ops::Quantize& call) override;
  void run(const ops::ScaledMatmul& call) override;
  // No part of a layer: run, and not written down.
  void run(const ops::Embedding& call) override { ops_->run(call); }
  void run(const ops::EmbeddingBackward& call) override { ops_->run(call); }
  void run(const ops::LogitStatistics& call) override { ops_->run(call); }
  void run(const ops::MergeAttention& call) override { ops_->run(call); }
  void run(const ops::CopyColumns& call) override { ops_->run(call); }
  void run(const ops::Route& call) override { ops_->run(call); }
  void run(const ops::RouteBackward& call) override { ops_->run(call); }
  void run(const ops::GatherTokens& call) override { ops_->run(call); }
  void run(const ops::CombineTokens& call) override { ops_->run(call); }
  void run(const ops::WeightRows& call) override { ops_->run(call); }
  void run(const ops::SoftCap& call) override { ops_->run(call); }
  void run(const ops::CrossEntropy& call) override { ops_->run(call); }
  void run(const ops::SquaredError& call) override { ops_->run(call); }
  void run(const ops::Adam& call) override { ops_->run(call); }
  void run(const ops::Sgd& call) override { ops_->run(call); }
  void run(const ops::SumOfSquares& call) override { ops_->run(call); }
  void run(const ops::UpdateScaling& call) override { ops_->run(call); }

  std::size_t scratch(const LinearShape& shape) const override { return ops_->scratch(shape); }
  std::size_t scratch(const ops::AttentionShape& shape) const override {
    return ops_->scratch(shape);
  }
  std::size_t norm_scratch(std::int64_t rows, std::int64_t width) const override {
    return ops_->norm_scratch(rows, width);
  }
  std::string implementation(const LinearShape& shape, LinearPass pass) const override {
    return ops_->implementation(shape, pass);
  }

 private:
  template <class Call>
  void record(const Call& call, RecordedOp op);

  std::unique_ptr<Ops> ops_;
  std::vector<RecordedOp> recorded_;
};

}  // namespace lockstep::cli
