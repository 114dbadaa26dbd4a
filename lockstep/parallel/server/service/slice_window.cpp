#include "lockstep/parallel/server/service/slice_window.h"

#include <cstring>
#include <utility>

#include "lockstep/ops/arguments.h"

namespace lockstep::parallel {

void SliceWindow::open(std::shared_ptr<const SliceStore> store) {
  const std::lock_guard lock(mutex_);
  store_ = std::move(store);
  for (const std::size_t slice : store_->slices()) {
    for (std::size_t kind = 0; kind < kStateKinds; ++kind) {
      const Tensor state = store_->state(static_cast<StateKind>(kind), slice);
      if (ops::is_given(state)) states_.push_back(state);
    }
  }
}

void SliceWindow::finish(std::uint64_t rounds) {
  const std::lock_guard lock(mutex_);
  done_ = rounds;
  changed_.notify_all();
}

void SliceWindow::serve(std::uint64_t rounds) {
  const std::lock_guard lock(mutex_);
  if (!done_ || !wanted_ || rounds < wanted_->rounds) return;
  pack(std::exchange(wanted_, std::nullopt)->into);
  changed_.notify_all();
}

void SliceWindow::set_wake(std::function<void()> wake) {
  const std::lock_guard lock(mutex_);
  wake_ = std::move(wake);
}

void SliceWindow::close(const Error& why) {
  const std::lock_guard lock(mutex_);
  if (!end_) end_ = why;
  changed_.notify_all();
}

bool SliceWindow::has_done(std::uint64_t rounds) {
  const std::lock_guard lock(mutex_);
  return !has_server_ || done_ == rounds;
}

void SliceWindow::await(std::uint64_t rounds) {
  if (!has_server_) return;
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return done_ && *done_ >= rounds; };
  changed_.wait(lock, [&] { return is_done() || end_ || stopped_; });
  if (!is_done()) fail_wait();
}

void SliceWindow::copy(std::uint64_t rounds, std::span<std::byte> into) {
  if (!has_server_) return;
  std::unique_lock lock(mutex_);
  want({rounds, into});
  changed_.wait(lock, [&] { return !wanted_ || end_ || stopped_; });
  if (std::exchange(wanted_, std::nullopt)) fail_wait();
}

bool SliceWindow::copy_now(std::span<std::byte> into) {
  if (!has_server_) return true;
  std::unique_lock lock(mutex_);
  if (!done_) return false;
  want({0, into});
  changed_.wait(lock, [&] { return !wanted_ || end_; });
  if (std::exchange(wanted_, std::nullopt)) pack(into);  // nobody changes them any more
  return true;
}

void SliceWindow::stop_waiting() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

// With the mutex, as the next ones.
void SliceWindow::fail_wait() const {
  if (end_) throw *end_;
  fail(ErrorCode::kAborted, "nobody waits for the parameter server of this rank any more");
}

void SliceWindow::want(const Wanted& wanted) {
  wanted_ = wanted;
  if (wake_) wake_();
}

void SliceWindow::pack(std::span<std::byte> into) const {
  std::size_t at = 0;
  for (const Tensor& state : states_) {
    if (state.bytes() > into.size() - at) {
      fail(ErrorCode::kInvalidArgument, "a server's states have more than {} bytes", into.size());
    }
    std::memcpy(into.data() + at, state.data(), state.bytes());
    at += state.bytes();
  }
}

}  // namespace lockstep::parallel
