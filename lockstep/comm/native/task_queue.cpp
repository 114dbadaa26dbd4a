#include "lockstep/comm/native/task_queue.h"

#include <optional>

#include "lockstep/base/system/completion.h"

namespace lockstep {

class TaskQueue::State : public Work::State {
 public:
  bool wait_until(std::chrono::steady_clock::time_point until) override {
    return end.wait_until(until);
  }
  std::optional<Error> error() const override { return end.error(); }

  Completion<std::optional<Error>> end;
};

Work TaskQueue::submit(std::function<void()> task) {
  auto state = std::make_shared<State>();
  pending_.fetch_add(1, std::memory_order_acq_rel);
  thread_.push([this, task = std::move(task), state]() mutable {
    std::optional<Error> error;
    try {
      task();
    } catch (const Error& caught) {
      error = caught;
    } catch (const std::exception& caught) {
      error = Error(ErrorCode::kSystem, caught.what());
    }
    task = nullptr;
    pending_.fetch_sub(1, std::memory_order_acq_rel);
    state->end.finish(std::move(error));
  });
  return Work(state);
}

}  // namespace lockstep
