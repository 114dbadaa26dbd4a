#include "lockstep/ops/cpu/loss/loss.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "lockstep/ops/check.h"
#include "lockstep/ops/cpu/loss/kernels.h"
#include "lockstep/ops/cpu/team/split.h"

namespace lockstep::cpu {
namespace {

// A target's index in a shard of logits; `classes` where it is in another one.
std::size_t index_in_shard(std::int32_t target, std::int64_t first, std::size_t classes) {
  const std::int64_t own = target - first;
  return own >= 0 && static_cast<std::size_t>(own) < classes ? static_cast<std::size_t>(own)
                                                             : classes;
}

float element(const Tensor& tensor, std::size_t index) {
  switch (tensor.dtype()) {
    case DType::kBF16:
      return to_float(tensor.as<const BFloat16>()[index]);
    case DType::kF16:
      return to_float(tensor.as<const Half>()[index]);
    default:
      return tensor.as<const float>()[index];
  }
}

// The statistics of all classes of a row, from those of every shard.
struct RowStatistics {
  float largest = 0;
  double sum = 0;
  double of_target = 0;

  RowStatistics(std::span<const float> all, std::size_t rows, std::size_t row) {
    const std::size_t shards = all.size() / (rows * ops::kLogitStatistics);
    const auto at = [&](std::size_t shard) {
      return all.subspan((shard * rows + row) * ops::kLogitStatistics, ops::kLogitStatistics);
    };
    largest = at(0)[0];
    for (std::size_t i = 1; i < shards; ++i) largest = std::max(largest, at(i)[0]);
    for (std::size_t i = 0; i < shards; ++i) {
      const double above = static_cast<double>(at(i)[0]) - static_cast<double>(largest);
      sum += static_cast<double>(at(i)[1]) * std::exp(above);
      of_target += static_cast<double>(at(i)[2]);
    }
  }
  float loss() const {
    return static_cast<float>(std::log(sum) + static_cast<double>(largest) - of_target);
  }
};

void run_shard(const Cpu& cpu, const ops::CrossEntropy& call) {
  const auto targets = call.targets.as<const std::int32_t>();
  const auto losses = call.losses.as<float>();
  const auto statistics = call.statistics.as<const float>();
  const auto classes = static_cast<std::size_t>(call.logits.shape()[1]);
  const std::size_t row_bytes = classes * size_of(call.logits.dtype());
  const auto kernel = loss_kernels(cpu.isa).shard_gradient[call.logits.dtype()];
  split(cpu.team, targets.size(), 1, call.logits.bytes(), [&](Range range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      std::byte* logits = call.logits.data() + row * row_bytes;
      if (targets[row] == ops::kNoTarget) {
        losses[row] = 0;
        if (call.gradient) std::memset(logits, 0, row_bytes);
        continue;
      }
      const RowStatistics all(statistics, targets.size(), row);
      losses[row] = all.loss();
      if (!call.gradient) continue;
      kernel(logits, classes, index_in_shard(targets[row], call.first_class, classes), all.largest,
             all.sum, static_cast<float>(call.factor), static_cast<float>(call.softcap));
    }
  });
}

}  // namespace

void run(const Cpu& cpu, const ops::LogitStatistics& call) {
  ops::check(call);
  const std::int64_t all = call.all_classes > 0 ? call.all_classes : call.logits.shape()[1];
  ops::check_indices(call.targets, all, "logit_statistics: targets", true);
  const auto targets = call.targets.as<const std::int32_t>();
  const auto statistics = call.statistics.as<float>();
  const auto classes = static_cast<std::size_t>(call.logits.shape()[1]);
  const std::size_t row_bytes = classes * size_of(call.logits.dtype());
  const auto kernel = loss_kernels(cpu.isa).logit_statistics[call.logits.dtype()];
  split(cpu.team, targets.size(), 1, call.logits.bytes(), [&](Range range) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      const auto result = statistics.subspan(row * ops::kLogitStatistics, ops::kLogitStatistics);
      std::fill(result.begin(), result.end(), 0.f);
      if (targets[row] == ops::kNoTarget) continue;
      const auto found = kernel(call.logits.data() + row * row_bytes, classes);
      const std::size_t own = index_in_shard(targets[row], call.first_class, classes);
      result[0] = found.largest;
      result[1] = found.sum;
      if (own < classes) result[2] = element(call.logits, row * classes + own);
    }
  });
}

void run(const Cpu& cpu, const ops::CrossEntropy& call) {
  ops::check(call);
  if (call.all_classes > 0) {
    ops::check_indices(call.targets, call.all_classes, "cross_entropy: targets", true);
    return run_shard(cpu, call);
  }
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
                             static_cast<float>(call.factor), static_cast<float>(call.softcap));
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
