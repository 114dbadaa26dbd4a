#include "lockstep/ops/check.h"
#include "lockstep/ops/ops.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep {
namespace {

class ReferenceOps final : public Ops {
 public:
  std::string name() const override { return "reference"; }

  void run(const ops::Linear& op) override { checked(op); }
  void run(const ops::LinearActivation& op) override { checked(op); }
  void run(const ops::LinearBackwardInput& op) override { checked(op); }
  void run(const ops::LinearBackwardWeight& op) override { checked(op); }
  void run(const ops::Activate& op) override { checked(op); }
  void run(const ops::Multiply& op) override { checked(op); }
  void run(const ops::Add& op) override { checked(op); }
  void run(const ops::SwiGlu& op) override { checked(op); }
  void run(const ops::SwiGluBackward& op) override { checked(op); }
  void run(const ops::Drop& op) override { checked(op); }
  void run(const ops::Cast& op) override { checked(op); }
  void run(const ops::Scale& op) override { checked(op); }
  void run(const ops::SoftCap& op) override { checked(op); }
  void run(const ops::Norm& op) override { checked(op); }
  void run(const ops::NormBackward& op) override { checked(op); }
  void run(const ops::HeadNorm& op) override { checked(op); }
  void run(const ops::HeadNormBackward& op) override { checked(op); }
  void run(const ops::Embedding& op) override { checked(op); }
  void run(const ops::EmbeddingBackward& op) override { checked(op); }
  void run(const ops::Attention& op) override { checked(op); }
  void run(const ops::AttentionBackward& op) override { checked(op); }
  void run(const ops::MergeAttention& op) override { checked(op); }
  void run(const ops::CopyColumns& op) override { checked(op); }
  void run(const ops::Route& op) override { checked(op); }
  void run(const ops::RouteBackward& op) override { checked(op); }
  void run(const ops::GatherTokens& op) override { checked(op); }
  void run(const ops::CombineTokens& op) override { checked(op); }
  void run(const ops::WeightRows& op) override { checked(op); }
  void run(const ops::Rotary& op) override { checked(op); }
  void run(const ops::LogitStatistics& op) override { checked(op); }
  void run(const ops::CrossEntropy& op) override { checked(op); }
  void run(const ops::SquaredError& op) override { checked(op); }
  void run(const ops::Adam& op) override { checked(op); }
  void run(const ops::Sgd& op) override { checked(op); }
  void run(const ops::SumOfSquares& op) override { checked(op); }
  void run(const ops::Quantize& op) override { checked(op); }
  void run(const ops::ScaledMatmul& op) override { checked(op); }
  void run(const ops::UpdateScaling& op) override { checked(op); }

  std::size_t scratch(const LinearShape&) const override { return 0; }
  std::size_t scratch(const ops::AttentionShape&) const override { return 0; }
  std::size_t norm_scratch(std::int64_t, std::int64_t) const override { return 0; }

  std::string implementation(const LinearShape&, LinearPass) const override { return "reference"; }

 private:
  template <class Op>
  static void checked(const Op& op) {
    ops::check(op, {.f64 = true, .z = true});
    ops::reference::run(op);
  }
};

}  // namespace

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<ReferenceOps>(); }

}  // namespace lockstep
