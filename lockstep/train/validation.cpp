#include "lockstep/train/validation.h"

#include <algorithm>
#include <vector>

namespace lockstep::train {

std::optional<double> validation_loss(nn::Replica& replica, BatchSource& source, RunGroup& group,
                                      std::int64_t most, const StopSignal& stop) {
  std::uint64_t batches = source.validation_batches();
  if (most > 0) batches = std::min(batches, static_cast<std::uint64_t>(most));
  const auto workers = static_cast<std::uint64_t>(group.size());
  // Of each its losses and its targets; and last whether this worker stopped.
  std::vector<double> mine((batches + workers - 1) / workers * 2 + 1);
  std::size_t at = 0;
  for (auto i = static_cast<std::uint64_t>(group.rank()); i < batches && !stop.came();
       i += workers) {
    const nn::Batch batch = source.validation(i);
    const Tensor rows = replica.evaluate(batch);
    replica.ops().synchronize();
    mine[at++] = nn::sum_of(rows);
    mine[at++] = static_cast<double>(nn::count_targets(batch));
  }
  mine.back() = stop.came() ? 1 : 0;
  const std::vector<double> all = group.numbers(mine);
  for (std::uint64_t worker = 0; worker < workers; ++worker) {
    if (all[(worker + 1) * mine.size() - 1] != 0) return std::nullopt;
  }
  double losses = 0;
  double targets = 0;
  for (std::uint64_t i = 0; i < batches; ++i) {
    const double* of = all.data() + i % workers * mine.size() + i / workers * 2;
    losses += of[0];
    targets += of[1];
  }
  if (targets == 0) return std::nullopt;
  return losses / targets;
}

}  // namespace lockstep::train
