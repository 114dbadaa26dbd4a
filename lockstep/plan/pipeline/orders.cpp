#include "lockstep/plan/pipeline/orders.h"

#include <algorithm>
#include <utility>

namespace lockstep::plan {
namespace {

Action forward_of(int micro_batch, int chunk = 0, int slice = 0) {
  return {ActionKind::kForward, micro_batch, chunk, slice};
}
Action backward_of(int micro_batch, int chunk = 0, int slice = 0) {
  return {ActionKind::kBackward, micro_batch, chunk, slice};
}
Action update_after(int micro_batch, int version = 0) {
  return {.kind = ActionKind::kUpdate, .micro_batch = micro_batch, .version = version};
}

// The order of a batch after which the pipeline is empty.
std::vector<Action> then_update(const PipelineShape& shape, std::vector<Action> order) {
  order.push_back(update_after(shape.micro_batches - 1));
  return order;
}

// `warm_up` forwards, then forward and backward in turn, then the backwards that are left.
std::vector<Action> alternate(const std::vector<Action>& forwards,
                              const std::vector<Action>& backwards, int warm_up) {
  const auto count = static_cast<int>(forwards.size());
  warm_up = std::min(warm_up, count);
  std::vector<Action> order(forwards.begin(), forwards.begin() + warm_up);
  for (int j = 0; j < count; ++j) {
    if (warm_up + j < count) order.push_back(forwards[static_cast<std::size_t>(warm_up + j)]);
    order.push_back(backwards[static_cast<std::size_t>(j)]);
  }
  return order;
}

std::vector<Action> alternate_micro_batches(int micro_batches, int warm_up) {
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  for (int i = 0; i < micro_batches; ++i) {
    forwards.push_back(forward_of(i));
    backwards.push_back(backward_of(i));
  }
  return alternate(forwards, backwards, warm_up);
}

// Splits every backward of an order: its weights come `lag` backwards later.
std::vector<Action> split_backwards(const std::vector<Action>& order, int lag, int micro_batches) {
  std::vector<Action> split;
  for (Action action : order) {
    if (action.kind != ActionKind::kBackward) {
      split.push_back(action);
      continue;
    }
    action.kind = ActionKind::kBackwardInput;
    split.push_back(action);
    const int due = action.micro_batch - lag;
    if (due >= 0) split.push_back({ActionKind::kBackwardWeight, due});
  }
  for (int i = std::max(micro_batches - lag, 0); i < micro_batches; ++i) {
    split.push_back({ActionKind::kBackwardWeight, i});
  }
  return split;
}

std::vector<Action> zero_bubble_order(const PipelineShape& shape, int warm_up, int lag) {
  const auto order = alternate_micro_batches(shape.micro_batches, warm_up);
  return then_update(shape, split_backwards(order, lag, shape.micro_batches));
}

// Sizes of the groups in which micro-batches go around the ranks.
std::vector<int> group_sizes(const PipelineShape& shape) {
  const int groups = std::max(shape.micro_batches / shape.stages, 1);
  std::vector<int> sizes;
  for (int i = 0; i < groups; ++i) {
    sizes.push_back(shape.micro_batches / groups + (i < shape.micro_batches % groups ? 1 : 0));
  }
  return sizes;
}

}  // namespace

std::vector<Action> sequential_order(const PipelineShape& shape, int) {
  return then_update(shape, alternate_micro_batches(shape.micro_batches, 0));
}

std::vector<Action> gpipe_order(const PipelineShape& shape, int) {
  return then_update(shape, alternate_micro_batches(shape.micro_batches, shape.micro_batches));
}

std::vector<Action> one_f_one_b_order(const PipelineShape& shape, int stage) {
  return then_update(shape, alternate_micro_batches(shape.micro_batches, shape.stages - 1 - stage));
}

std::vector<Action> interleaved_order(const PipelineShape& shape, int stage) {
  if (shape.chunks == 1) return one_f_one_b_order(shape, stage);
  const std::vector<int> sizes = group_sizes(shape);
  std::vector<Action> forwards;
  std::vector<Action> backwards;
  int first = 0;
  for (const int size : sizes) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk) {
      for (int i = first; i < first + size; ++i) {
        forwards.push_back(forward_of(i, chunk));
        backwards.push_back(backward_of(i, shape.chunks - 1 - chunk));
      }
    }
    first += size;
  }
  const int warm_up = 2 * (shape.stages - 1 - stage) + (shape.chunks - 1) * sizes.front();
  return then_update(shape, alternate(forwards, backwards, warm_up));
}

std::vector<Action> zb_h1_order(const PipelineShape& shape, int stage) {
  return zero_bubble_order(shape, shape.stages - 1 - stage, stage);
}

std::vector<Action> zb_h2_order(const PipelineShape& shape, int stage) {
  return zero_bubble_order(shape, 2 * (shape.stages - 1 - stage), 2 * stage);
}

std::vector<Action> terapipe_order(const PipelineShape& shape, int) {
  std::vector<Action> order;
  for (int i = 0; i < shape.micro_batches; ++i) {
    for (int slice = 0; slice < shape.slices; ++slice) order.push_back(forward_of(i, 0, slice));
  }
  for (int i = 0; i < shape.micro_batches; ++i) {
    for (int slice = shape.slices; slice-- > 0;) order.push_back(backward_of(i, 0, slice));
  }
  return then_update(shape, std::move(order));
}

std::vector<Action> pipedream_2bw_order(const PipelineShape& shape, int stage) {
  std::vector<Action> order;
  for (Action action :
       alternate_micro_batches(shape.all_micro_batches(), shape.stages - 1 - stage)) {
    const int batch = shape.batch_of(action.micro_batch);
    action.version = std::max(batch - 1, 0);
    order.push_back(action);
    const bool ends_batch = (action.micro_batch + 1) % shape.micro_batches == 0;
    if (action.kind != ActionKind::kBackward || !ends_batch) continue;
    order.push_back(update_after(action.micro_batch, batch));
  }
  return order;
}

}  // namespace lockstep::plan
