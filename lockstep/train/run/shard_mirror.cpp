#include "lockstep/train/run/shard_mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/simd/crc32c.h"
#include "lockstep/train/run/recomputed_update.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::train {
ShardMirror::ShardMirror(Communicator& world, Trainer& trainer)
    : trainer_(trainer),
      states_(mirrored_states(trainer)),
      trace_(trainer.strategy().trace()),
      group_(world.split(0, world.rank())) {
  const std::vector<int> holders = mirror_holders(world.machines());
  holder_ = holders[static_cast<std::size_t>(world.rank())];
  ward_ = static_cast<int>(std::ranges::find(holders, world.rank()) - holders.begin());
  copy_.bytes = Buffer(states_->bytes_of(world.rank()));
  for (Slot& slot : mirrored_) slot.bytes = Buffer(states_->bytes_of(ward_));
}

ShardMirror::~ShardMirror() { end(); }

// What is under way, on all workers.
void ShardMirror::end() {
  if (thread_.under_way() > 0) {
    group_->abort("this rank ends its run, or has lost others");
    states_->stop();
  }
  thread_.settle();
}

std::size_t ShardMirror::bytes() const {
  return copy_.bytes.bytes() + mirrored_[0].bytes.bytes() + mirrored_[1].bytes.bytes();
}

void ShardMirror::begin(const Trainer::Settled& settled) {
  states_->begin();
  thread_.push([this, settled] { return mirror(settled); });
}

void ShardMirror::wait() {
  if (thread_.under_way() == 0) return thread_.wait();  // throws what a task threw
  const parallel::TraceScope scope(
      trace_, {.lane = parallel::TraceLane::kWaiting, .kind = "wait for", .of = "mirror"});
  thread_.wait();
}

std::uint64_t ShardMirror::mirror(const Trainer::Settled& settled) {
  states_->settle();
  Slot& into = mirrored_[1 - newest_];
  into.of.reset();
  exchange(into);
  into.of = settled;
  newest_ = 1 - newest_;
  group_->barrier();
  copy_.of.reset();
  pack(states_->mine(), {copy_.bytes.data(), copy_.bytes.bytes()});
  copy_.of = settled;
  return 0;
}

void ShardMirror::exchange(const Slot& into) {
  std::vector<Work> works;
  std::byte* at = into.bytes.data();
  for (const std::size_t elements : states_->elements_of(ward_)) {
    if (elements == 0) continue;
    works.push_back(group_->start(receive(Data(at, elements, DType::kF32), ward_)));
    at += elements * sizeof(float);
  }
  for (const Tensor& state : states_->mine()) {
    works.push_back(
        group_->start(send(ConstData(state.data(), state.elements(), state.dtype()), holder_)));
  }
  wait_for_all(works);
}

void ShardMirror::compare() {
  wait();
  compare_copies();
  if (trainer_.strategy().served_states() == nullptr) compare_updates();
}

// All workers have mirrored the same steps, and so they agree on whether there is an update.
void ShardMirror::compare_updates() {
  const Slot& after = mirrored_[newest_];
  const Slot& before = mirrored_[1 - newest_];
  const std::uint64_t number = samples_++;
  const bool is_one = before.of && after.of && after.of->metrics && !after.of->metrics->skipped &&
                      after.of->state.steps == trainer_.state().steps &&
                      after.of->state.updates == before.of->state.updates + 1;
  if (!is_one) return;
  const auto bytes = [](const Slot& slot) {
    return std::span<const std::byte>(slot.bytes.data(), slot.bytes.bytes());
  };
  const auto block = differing_update(*group_, trainer_, holder_, ward_,
                                      {bytes(before), bytes(after), *after.of}, number);
  const std::array<double, 2> mine = {block ? static_cast<double>(*block) : -1,
                                      static_cast<double>(ward_)};
  const std::vector<double> all = RunGroup(group_.get()).numbers(mine);
  for (std::size_t holder = 0; holder * mine.size() < all.size(); ++holder) {
    const double* const of = all.data() + holder * mine.size();
    if (of[0] < 0) continue;
    const auto ward = static_cast<int>(of[1]);
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("rank {} has computed the update of {} by rank {} again, and got other bits: "
                    "one of them computes wrongly",
                    holder,
                    trainer_.replica().model().block(static_cast<std::size_t>(of[0])).name(), ward),
        {ward, static_cast<int>(holder)});
  }
}

void ShardMirror::compare_copies() {
  std::uint32_t own = 0;
  for (const Tensor& state : states_->mine()) own = crc32c({state.data(), state.bytes()}, own);
  const Slot& newest = mirrored_[newest_];
  const std::size_t bytes = packed_bytes(states_->elements_of(ward_));
  const std::array<double, 3> mine = {static_cast<double>(own),
                                      static_cast<double>(crc32c({newest.bytes.data(), bytes})),
                                      static_cast<double>(ward_)};
  RunGroup group(group_.get());
  const std::vector<double> all = group.numbers(mine);
  for (std::size_t holder = 0; holder * mine.size() < all.size(); ++holder) {
    const double* const of = all.data() + holder * mine.size();
    const auto ward = static_cast<std::size_t>(of[2]);
    if (all[ward * mine.size()] == of[1]) continue;
    throw Error(ErrorCode::kMismatch,
                fmt::format("the shard of rank {} differs from its mirror on rank {}: the memory "
                            "of one of them is faulty",
                            ward, holder),
                {static_cast<int>(ward), static_cast<int>(holder)});
  }
}

KeptShards ShardMirror::take(const std::optional<Trainer::Settled>& settled) {
  end();
  KeptShards kept;
  kept.worker = states_->shard_of(group_->rank()).value_or(-1);
  kept.parts = states_->parts();
  kept.ward = states_->shard_of(ward_).value_or(-1);
  if (settled && settled->state.steps > 0 && states_->are_settled()) {
    Buffer bytes(states_->bytes_of(group_->rank()));
    pack(states_->mine(), {bytes.data(), bytes.bytes()});
    kept.own.push_back({settled->state, settled->metrics, std::move(bytes)});
  }
  const auto keep = [](Slot& slot, std::vector<ShardVersion>& versions) {
    if (!slot.of || slot.of->state.steps == 0) return;
    const std::int64_t steps = slot.of->state.steps;
    const auto is_same = [&](const ShardVersion& one) { return one.state.steps == steps; };
    if (std::ranges::any_of(versions, is_same)) return;
    versions.push_back({slot.of->state, slot.of->metrics, std::move(slot.bytes)});
  };
  keep(copy_, kept.own);
  for (Slot& slot : mirrored_) keep(slot, kept.mirrored);
  return kept;
}

}  // namespace lockstep::train
