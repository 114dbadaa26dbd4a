#include "lockstep/train/shared_data.h"

namespace lockstep::train {
namespace {

// What the leader says about the data.
enum class DataState { kBusy, kReady, kStopped };

// All call it together; what others than the leader say does not count.
DataState word_of_leader(RunGroup& group, DataState mine = DataState::kBusy) {
  const auto number = static_cast<double>(mine);
  return static_cast<DataState>(group.numbers(std::span(&number, 1)).front());
}

}  // namespace

void await_shared_dataset(RunGroup& group) {
  DataState said = DataState::kBusy;
  while (said == DataState::kBusy) said = word_of_leader(group);
  if (said == DataState::kStopped) throw StoppedBeforeTheFirstStep();
}

Dataset open_shared_dataset(RunGroup& group, const StopSignal& stop, const Tell& notice,
                            const std::function<Dataset(const Tell&)>& open) {
  if (!group.leads()) {
    await_shared_dataset(group);
    return open([](std::string_view) {});
  }
  try {
    Dataset dataset = open([&](std::string_view text) {
      notice(text);
      if (stop.came()) throw StoppedBeforeTheFirstStep();
      word_of_leader(group, DataState::kBusy);
    });
    word_of_leader(group, DataState::kReady);
    return dataset;
  } catch (const StoppedBeforeTheFirstStep&) {
    word_of_leader(group, DataState::kStopped);
    throw;
  }
}

}  // namespace lockstep::train
