#include <fmt/format.h>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/attention/attention.h"
#include "lockstep/ops/cpu/elementwise/elementwise.h"
#include "lockstep/ops/cpu/embedding/embedding.h"
#include "lockstep/ops/cpu/linear/linear.h"
#include "lockstep/ops/cpu/loss/loss.h"
#include "lockstep/ops/cpu/norm/norm.h"
#include "lockstep/ops/cpu/optimizer/optimizer.h"
#include "lockstep/ops/ops.h"
#include "lockstep/ops/reference/reference.h"

namespace lockstep {
namespace {

using cpu::Cpu;

class CpuOps final : public Ops {
 public:
  CpuOps(int threads, Isa isa) : team_(threads), cpu_{team_, isa}, linear_(cpu_) {}

  std::string name() const override {
    return fmt::format("cpu, {} thread{}, {}", team_.size(), team_.size() == 1 ? "" : "s",
                       lockstep::name(cpu_.isa));
  }

  void run(const ops::Linear& call) override { linear(call); }
  void run(const ops::LinearActivation& call) override { linear(call); }
  void run(const ops::LinearBackwardInput& call) override { linear(call); }
  void run(const ops::LinearBackwardWeight& call) override {
    if (call.overwrite) clear(call, {call.dweight, call.dbias});
    linear(call);
  }
  void run(const ops::Activate& call) override { cpu::run(cpu_, call); }
  void run(const ops::Multiply& call) override { cpu::run(cpu_, call); }
  void run(const ops::Add& call) override { cpu::run(cpu_, call); }
  void run(const ops::SwiGlu& call) override { cpu::run(cpu_, call); }
  void run(const ops::SwiGluBackward& call) override { cpu::run(cpu_, call); }
  void run(const ops::Drop& call) override { cpu::run(cpu_, call); }
  void run(const ops::Cast& call) override { cpu::run(cpu_, call); }
  void run(const ops::Scale& call) override { cpu::run(cpu_, call); }
  void run(const ops::SoftCap& call) override { cpu::run(cpu_, call); }
  void run(const ops::Norm& call) override { cpu::run(cpu_, call); }
  void run(const ops::NormBackward& call) override {
    ops::check(call);  // before its shapes say how much scratch memory it needs
    if (call.overwrite) clear(call, {call.dgain, call.dbias});
    const std::size_t needed = norm_scratch(call.sum.shape()[0], call.sum.shape()[1]);
    cpu::run(cpu_, call, scratch_memory(needed));
  }
  void run(const ops::HeadNorm& call) override { cpu::run(cpu_, call); }
  void run(const ops::HeadNormBackward& call) override {
    ops::check(call);
    cpu::run(cpu_, call, scratch_memory(norm_scratch(call.x.rows.shape()[0], call.head_size)));
  }
  void run(const ops::Embedding& call) override { cpu::run(cpu_, call); }
  void run(const ops::EmbeddingBackward& call) override { cpu::run(cpu_, call); }
  void run(const ops::Attention& call) override {
    ops::check(call);
    cpu::run(cpu_, call, scratch_memory(scratch(call.shape)));
  }
  void run(const ops::AttentionBackward& call) override {
    ops::check(call);
    cpu::run(cpu_, call, scratch_memory(scratch(call.shape)));
  }
  void run(const ops::MergeAttention& call) override { cpu::run(cpu_, call); }
  void run(const ops::CopyColumns& call) override { cpu::run(cpu_, call); }
  void run(const ops::Route& call) override { cpu::run(cpu_, call); }
  void run(const ops::RouteBackward& call) override { cpu::run(cpu_, call); }
  void run(const ops::GatherTokens& call) override { cpu::run(cpu_, call); }
  void run(const ops::CombineTokens& call) override { cpu::run(cpu_, call); }
  void run(const ops::WeightRows& call) override { cpu::run(cpu_, call); }
  void run(const ops::Rotary& call) override { cpu::run(cpu_, call); }
  void run(const ops::LogitStatistics& call) override { cpu::run(cpu_, call); }
  void run(const ops::CrossEntropy& call) override { cpu::run(cpu_, call); }
  void run(const ops::SquaredError& call) override { cpu::run(cpu_, call); }
  void run(const ops::Adam& call) override { cpu::run(cpu_, call); }
  void run(const ops::Sgd& call) override { cpu::run(cpu_, call); }
  void run(const ops::SumOfSquares& call) override { cpu::run(cpu_, call); }
  void run(const ops::Quantize& call) override { plain(call); }
  void run(const ops::ScaledMatmul& call) override { plain(call); }
  void run(const ops::UpdateScaling& call) override { plain(call); }

  std::size_t scratch(const LinearShape& shape) const override { return linear_.scratch(shape); }
  std::size_t scratch(const ops::AttentionShape& shape) const override {
    return cpu::attention_scratch(cpu_, shape);
  }
  std::size_t norm_scratch(std::int64_t rows, std::int64_t width) const override {
    return cpu::norm_scratch(cpu_, rows, width);
  }
  std::string implementation(const LinearShape& shape, LinearPass pass) const override {
    return linear_.implementation({shape, pass});
  }

 private:
  template <class Call>
  void linear(const Call& call) {
    ops::check(call);
    linear_.run(call, scratch_memory(linear_.scratch(cpu::task_of(call))));
  }

  template <class Call>
  static void clear(const Call& call, std::initializer_list<Tensor> gradients) {
    ops::check(call);
    for (const Tensor& one : gradients) {
      if (ops::is_given(one)) fill_zero(one);
    }
  }

  // By the loops of the reference: CPUs train in no 8 bits, but tests do.
  template <class Call>
  void plain(const Call& call) {
    ops::check(call);
    ops::reference::run(call);
  }

  cpu::ThreadTeam team_;
  Cpu cpu_;
  cpu::LinearLayers linear_;
};

}  // namespace

std::unique_ptr<Ops> make_cpu_ops(int threads) {
  return std::make_unique<CpuOps>(threads, chosen_isa());
}

}  // namespace lockstep
