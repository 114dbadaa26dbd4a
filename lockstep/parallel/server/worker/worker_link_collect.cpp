// How a worker gathers the states that servers hold of its slices.
#include "lockstep/parallel/server/worker/worker_link.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kCollectsUnderWay = 2;  // slices at a time, of each server

}  // namespace

Tensor WorkerLink::state_buffer(StateKind kind) const {
  switch (kind) {
    case StateKind::kMaster:
      return states_.master;
    case StateKind::kFirstMoment:
      return states_.first_moment;
    case StateKind::kSecondMoment:
      return states_.second_moment;
    case StateKind::kVelocity:
      return states_.velocity;
  }
  return {};
}

void WorkerLink::collect(std::uint64_t round) {
  Lock lock(mutex_);
  if (fault_) throw *fault_;
  std::size_t kinds = 0;
  for (std::size_t i = 0; i < kStateKinds; ++i)
    kinds += layout_.has(static_cast<StateKind>(i)) ? 1 : 0;
  round_ = round;
  states_to_come_ = kinds * layout_.slices.size();
  for (std::size_t slice = layout_.slices.size(); slice-- > 0;) {
    to_collect_[static_cast<std::size_t>(layout_.slices[slice].server)].push_back(slice);
  }
  for (int server = 0; server < map_.servers; ++server) {
    for (std::size_t i = 0; i < kCollectsUnderWay; ++i) ask_for_states(server);
  }
  loop_.wake();
  // Each slice is waited for again, since a large model takes its time.
  while (states_to_come_ > 0) {
    const std::size_t before = states_to_come_;
    await_states(lock, before);
  }
}

void WorkerLink::ask_for_states(int server) {
  std::vector<std::size_t>& slices = to_collect_[static_cast<std::size_t>(server)];
  if (slices.empty()) return;
  posted_.emplace_back(server, small_message({.kind = Kind::kCollect,
                                              .slice = static_cast<std::uint32_t>(slices.back()),
                                              .round = round_}));
  slices.pop_back();
}

void WorkerLink::round_parameters() {
  for (std::size_t slice = 0; slice < layout_.slices.size(); ++slice) {
    codec_->round(slice, parameters(slice));
  }
}

}  // namespace lockstep::parallel
