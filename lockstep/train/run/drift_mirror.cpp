#include "lockstep/train/run/drift_mirror.h"

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/memory/mirror_memory.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {

// The members are the first ranks of the world, so they have the same numbers in the group.
DriftMirror::DriftMirror(Communicator& world, Trainer& trainer)
    : trainer_(trainer), states_(mirrored_states(trainer)), worker_(world.rank()) {
  const bool is_member = worker_ < mirroring_workers(trainer.options());
  std::unique_ptr<Communicator> group = world.split(is_member ? 0 : 1, worker_);
  if (!is_member) return;
  group_ = std::move(group);
  const std::vector<int> holders = mirror_holders(group_->machines());
  holder_ = holders[static_cast<std::size_t>(worker_)];
  ward_ = static_cast<int>(std::ranges::find(holders, worker_) - holders.begin());
  copy_ = Buffer(states_->bytes_of(worker_));
  for (Buffer& slot : mirrored_) slot = Buffer(states_->bytes_of(*ward_));
  thread_.push([this] {
    run();
    return std::uint64_t{0};
  });
}

DriftMirror::~DriftMirror() { end(); }

std::size_t DriftMirror::bytes() const {
  return copy_.bytes() + mirrored_[0].bytes() + mirrored_[1].bytes();
}

void DriftMirror::end() {
  trainer_.strategy().served_states()->stop_waiting();
  if (thread_.under_way() > 0) group_->abort("this rank ends its run, or has lost others");
  thread_.settle();
}

// The others hear of it with their next copy, or when they finish.
void DriftMirror::finish() {
  finishes_ = true;
  trainer_.strategy().served_states()->stop_waiting();
  thread_.settle();
}

// Of this server's slices; false: this worker finishes.
bool DriftMirror::copy(std::uint64_t rounds) {
  try {
    trainer_.strategy().served_states()->copy(rounds, {copy_.data(), copy_.bytes()});
  } catch (const Error& error) {
    if (finishes_ && error.code() == ErrorCode::kAborted) return false;
    throw;
  }
  return true;
}

// A worker that loses a rank that the run needs hears of it from the servers.
void DriftMirror::run() {
  RunGroup group(group_.get());
  try {
    for (std::uint64_t rounds = 0;; ++rounds) {
      const bool stops = !copy(rounds);
      if (group.any(stops)) return;
      const std::size_t into = newest_ ? 1 - *newest_ : 0;
      exchange(mirrored_[into]);
      newest_ = into;
    }
  } catch (const Error& error) {
    const bool is_end = error.code() == ErrorCode::kAborted || error.code() == ErrorCode::kPeerLost;
    if (is_end) {
      log_info("slices are not mirrored any more: {}", error.what());
    } else {
      newest_.reset();  // it would only become older
      log_warn("slices of parameter servers are not mirrored any more: {}", error.what());
    }
  }
}

void DriftMirror::exchange(const Buffer& into) {
  std::vector<Work> works;
  if (into.bytes() > 0) {
    works.push_back(group_->start(receive(Data(into.data(), into.bytes(), DType::kU8), *ward_)));
  }
  if (copy_.bytes() > 0) {
    works.push_back(
        group_->start(send(ConstData(copy_.data(), copy_.bytes(), DType::kU8), holder_)));
  }
  wait_for_all(works);
}

KeptShards DriftMirror::take(const std::optional<Trainer::Settled>& settled) {
  end();
  KeptShards kept;
  kept.worker = states_->shard_of(worker_).value_or(-1);
  kept.parts = states_->parts();
  kept.ward = ward_ ? states_->shard_of(*ward_).value_or(-1) : -1;
  TrainState state = settled ? settled->state : trainer_.state();
  if (!settled) --state.steps;  // it was not finished
  state.updates = state.steps;
  Buffer own(states_->bytes_of(worker_));
  if (trainer_.strategy().served_states()->copy_now({own.data(), own.bytes()})) {
    kept.own.push_back({state, {}, std::move(own)});
  }
  if (newest_) kept.mirrored.push_back({state, {}, std::move(mirrored_[*newest_])});
  return kept;
}

}  // namespace lockstep::train
