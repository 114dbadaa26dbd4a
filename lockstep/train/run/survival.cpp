#include "lockstep/train/run/survival.h"

#include <fmt/format.h>

#include <array>

#include "lockstep/train/checkpoint/state_tensors.h"
#include "lockstep/train/observe/metrics_line.h"

namespace lockstep::train {
bool keeps_states(const nn::Replica& replica, const parallel::Strategy& strategy,
                  const parallel::ParallelOptions& options) {
  const bool has_all = strategy.name() == "ddp" || strategy.name() == "alone";
  return has_all && !shards_states(replica) && replica.ops().device() == Device{} &&
         replica.state_file() == nullptr && !ops::is_given(replica.scaling()) &&
         options.compression.compression == parallel::Compression::kNone;
}

std::optional<KeptStates> keep_states(Trainer& trainer) {
  const auto& settled = trainer.last_settled();
  if (!settled || settled->state.steps == 0) return std::nullopt;
  KeptStates kept{.state = settled->state, .bytes = {}, .metrics = settled->metrics};
  kept.bytes.resize(packed_bytes(trainer.replica()));
  pack_states(trainer.replica(), kept.bytes);
  return kept;
}

void put_states(const KeptStates& kept, nn::Replica& replica) { put_states(kept.bytes, replica); }

std::optional<Source> furthest_worker(const std::optional<KeptStates>& mine, RunGroup group) {
  constexpr std::size_t kNumbers = 5;
  std::array<double, kNumbers> numbers{};
  std::string line;
  if (mine) {
    const TrainState& state = mine->state;
    const optim::LossScale scale = state.loss_scale.value_or(optim::LossScale{.scale = 0});
    numbers = {static_cast<double>(state.steps), static_cast<double>(state.updates), scale.scale,
               static_cast<double>(scale.good_steps), 1};
    if (mine->metrics) {
      StepRecord record;
      record.metrics = *mine->metrics;
      line = metrics_line(record, state.loss_scale.has_value());
    }
  }
  const std::vector<double> all = group.numbers(numbers);
  const std::vector<std::string> lines = group.texts(line);
  std::optional<Source> source;
  for (std::size_t worker = 0; worker < lines.size(); ++worker) {
    const double* const of = all.data() + worker * kNumbers;
    const auto steps = static_cast<std::int64_t>(of[0]);
    if (of[4] == 0 || (source && source->state.steps >= steps)) continue;
    source = {
        .worker = static_cast<int>(worker),
        .state = {.steps = steps, .updates = static_cast<std::int64_t>(of[1]), .loss_scale = {}},
        .record = parse_metrics_line(lines[worker]),
        .what = fmt::format("the states of rank {}", worker)};
    if (of[2] > 0) {
      source->state.loss_scale = {.scale = of[2], .good_steps = static_cast<std::int64_t>(of[3])};
    }
  }
  return source;
}

}  // namespace lockstep::train
