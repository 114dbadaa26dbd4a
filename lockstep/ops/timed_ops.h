// Ops that hands every operation on to another, and on request notes when each began and ended:
// where the time of a step goes.
//
//   TimedOps timed(*ops);
//   timed.start();
//   trainer.step(batches);         // a trainer that was made with `timed`
//   for (const OpTime& one : total_times(timed.stop())) ...
//
// While it notes nothing it costs a call more per operation. Moments are the device's, so a GPU is
// not made to wait; but operations are queued one by one, not launched as graphs, and a small one
// may wait for the host.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/ops/ops.h"

namespace lockstep {

// All calls of one operation, or of one of its shapes if the speed depends on the shape.
struct OpTime {
  std::string operation;  // "norm", "linear, 768 to 3072"
  std::int64_t calls = 0;
  double seconds = 0;
  double flops = 0;  // of its matrix products, all calls together; 0: it has none
};

// One call of an operation.
struct OpCall {
  std::string operation;
  double flops = 0;
  Moment begin;
  Moment end;
};

// Of all calls, longest first. Waits until they are done.
std::vector<OpTime> total_times(const std::vector<OpCall>& calls);

class TimedOps final : public Ops {
 public:
  explicit TimedOps(Ops& ops) : ops_(ops) {}

  void start();
  // What was run since start().
  std::vector<OpCall> stop();

  std::string name() const override { return ops_.name(); }
  Device device() const override { return ops_.device(); }

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
  void run(const ops::MergeAttention& call) override;
  void run(const ops::CopyColumns& call) override;
  void run(const ops::Route& call) override;
  void run(const ops::RouteBackward& call) override;
  void run(const ops::GatherTokens& call) override;
  void run(const ops::CombineTokens& call) override;
  void run(const ops::WeightRows& call) override;
  void run(const ops::AddCounts& call) override;
  void run(const ops::CountTargets& call) override;
  void run(const ops::BalanceExperts& call) override;
  void run(const ops::HeadNorm& call) override;
  void run(const ops::HeadNormBackward& call) override;
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
  void run(const ops::RelativeBias& call) override;
  void run(const ops::RelativeBiasBackward& call) override;
  void run(const ops::Quantize& call) override;
  void run(const ops::ScaledMatmul& call) override;
  void run(const ops::UpdateScaling& call) override;

  std::size_t scratch(const LinearShape& shape) const override { return ops_.scratch(shape); }
  std::size_t scratch(const ops::AttentionShape& shape) const override {
    return ops_.scratch(shape);
  }
  std::size_t decode_attention_scratch(const ops::AttentionShape& shape) const override {
    return ops_.decode_attention_scratch(shape);
  }
  std::size_t norm_scratch(std::int64_t rows, std::int64_t width) const override {
    return ops_.norm_scratch(rows, width);
  }
  std::size_t embedding_scratch(std::int64_t rows, std::int64_t width,
                                std::int64_t classes) const override {
    return ops_.embedding_scratch(rows, width, classes);
  }
  void use_scratch(const Tensor& memory) override { ops_.use_scratch(memory); }
  std::string implementation(const LinearShape& shape, LinearPass pass) const override {
    return ops_.implementation(shape, pass);
  }
  std::string chosen_algorithms() const override { return ops_.chosen_algorithms(); }
  bool differentiates_from_input(ops::Activation activation) const override {
    return ops_.differentiates_from_input(activation);
  }
  void synchronize() override { ops_.synchronize(); }
  Event record() override { return ops_.record(); }
  void wait(const Event& event) override { ops_.wait(event); }
  Moment moment() override { return ops_.moment(); }
  void in_order(const std::function<void()>& task) override { ops_.in_order(task); }
  // Times are noted of what runs when it is called.
  bool can_capture() const override { return !notes_ && ops_.can_capture(); }
  void begin_capture() override { ops_.begin_capture(); }
  std::unique_ptr<CapturedStep> end_capture() override { return ops_.end_capture(); }

 private:
  // The name of a call, and the FLOPs of its products.
  struct Kind {
    std::string operation;
    double flops = 0;
  };

  // kind() is asked only while times are noted.
  template <class Call, class KindOf>
  void time(const Call& call, KindOf&& kind);
  template <class Call>
  void time_as(const Call& call, std::string_view operation);

  Ops& ops_;
  bool notes_ = false;
  std::vector<OpCall> calls_;
};

}  // namespace lockstep
