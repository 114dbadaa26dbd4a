#include "lockstep/ops/cpu/loss/loss.h"

#include <cstring>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/loss/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {

void run(const Cpu& cpu, const ops::CrossEntropy& call) {
  ops::check(call);
  ops::check_indices(call.targets, call.logits.shape()[1], "cross_entropy: targets", true);
  const auto targets = call.targets.as<const std::int32_t>();
  const auto losses = call.losses.as<float>();
  const auto classes = static_cast<std::size_t>(call.logits.shape()[1]);
  const std::size_t row_bytes = classes * size_of(call.logits.dtype());
  const auto kernel = loss_kernels(cpu.isa).cross_entropy[call.logits.dtype()];
  split(cpu.team, targets.size(), 1, call.logits.bytes(), [&](Range range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      std::byte* logits = call.logits.data() + row * row_bytes;
      if (targets[row] != ops::kNoTarget) {
        losses[row] = kernel(logits, classes, static_cast<std::size_t>(targets[row]), call.gradient,
                             static_cast<float>(call.factor));
      } else {
        losses[row] = 0;
        if (call.gradient) std::memset(logits, 0, row_bytes);
      }
    }
  });
}

void run(const Cpu& cpu, const ops::SquaredError& call) {
  ops::check(call);
  const auto losses = call.losses.as<float>();
  const auto width = static_cast<std::size_t>(call.x.shape()[1]);
  const std::size_t row_bytes = width * size_of(call.x.dtype());
  const auto kernel = loss_kernels(cpu.isa).squared_error[call.x.dtype()];
  split(cpu.team, losses.size(), 1, 3 * call.x.bytes(), [&](Range range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      const std::size_t offset = row * row_bytes;
      std::byte* dx = ops::is_given(call.dx) ? call.dx.data() + offset : nullptr;
      losses[row] = kernel(call.x.data() + offset, call.target.data() + offset, dx, width,
                           static_cast<float>(call.factor));
    }
  });
}

}  // namespace lockstep::cpu
