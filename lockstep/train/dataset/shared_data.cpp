#include "lockstep/train/dataset/shared_data.h"

#include <exception>

namespace lockstep::train {
namespace {

// What the leader says about the data.
enum class DataState { kBusy, kReady, kStopped, kUnreadable };

// All call it together; what others than the leader say does not count.
DataState word_of_leader(RunGroup& group, DataState mine = DataState::kBusy) {
  const auto number = static_cast<double>(mine);
  return static_cast<DataState>(group.numbers(std::span(&number, 1)).front());
}

bool came(const StopSignal* stop) { return stop != nullptr && stop->came(); }

// `open` of a rank that does not lead; nothing: it needs no data.
void open_after_leader(RunGroup& group, const StopSignal* stop, const std::function<void()>& open) {
  DataState said = DataState::kBusy;
  try {
    while (said == DataState::kBusy) said = word_of_leader(group);
  } catch (const Error& error) {
    if (came(stop) && error.code() == ErrorCode::kPeerLost) throw StoppedBeforeTheFirstStep();
    throw;
  }
  if (said == DataState::kStopped) throw StoppedBeforeTheFirstStep();
  const bool opens = open && said == DataState::kReady;
  group.together(opens ? open : [] {});
}

}  // namespace

void await_shared_dataset(RunGroup& group, const StopSignal* stop) {
  open_after_leader(group, stop, {});
}

Dataset open_shared_dataset(RunGroup& group, const StopSignal* stop, const Tell& notice,
                            const std::function<Dataset(const Tell&)>& open) {
  Dataset dataset;
  if (!group.leads()) {
    open_after_leader(group, stop, [&] { dataset = open([](std::string_view) {}); });
    return dataset;
  }
  std::exception_ptr failure;
  try {
    dataset = open([&](std::string_view text) {
      notice(text);
      if (came(stop)) throw StoppedBeforeTheFirstStep();
      word_of_leader(group, DataState::kBusy);
    });
  } catch (const StoppedBeforeTheFirstStep&) {
    word_of_leader(group, DataState::kStopped);
    throw;
  } catch (const Error& error) {
    if (is_of_ranks(error.code())) throw;  // the other ranks are gone
    failure = std::current_exception();
  } catch (const std::exception&) {
    failure = std::current_exception();
  }
  word_of_leader(group, failure ? DataState::kUnreadable : DataState::kReady);
  group.together([&] {
    if (failure) std::rethrow_exception(failure);
  });
  return dataset;
}

}  // namespace lockstep::train
