#include "lockstep/parallel/offload/tier_mover.h"

#include <utility>

#include "lockstep/parallel/gradients/first_writers.h"
#include "lockstep/tensor/copy_on.h"

namespace lockstep::parallel {
namespace {

TraceLabel label_of(std::string_view kind, std::string_view of, std::size_t block) {
  return {.kind = kind, .of = of, .index = static_cast<std::int64_t>(block)};
}

}  // namespace

void TierMover::start(nn::Replica& replica, Trace& trace) {
  const nn::MemoryPlan& plan = replica.plan();
  replica_ = &replica;
  trace_ = &trace;
  moves_parameters_ = plan.gathers_parameters() && !plan.sharding.parameters;
  moves_gradients_ = plan.has_gradients_in_flight() && !plan.sharding.gradients;
  gathers_.assign(plan.gathers.size(), 0);
  left_.assign(plan.absences.size(), 0);
  back_.assign(plan.absences.size(), 0);
  stored_ = std::vector<std::atomic<Ticket>>(plan.flat.blocks());
  first_writers_ = first_writers(plan);
  one_by_one_ = plan.tiers.has_files() && !plan.tiers.overlaps;
  if (plan.tiers.parameters == Tier::kFile) reader_.emplace(*replica.state_file());
  if (plan.device != Device{} && plan.tiers.any()) stream_.emplace(plan.device);
}

TierMover::Ticket TierMover::push(TraceLabel label, std::size_t elements,
                                  std::function<void()> move) {
  label.lane = TraceLane::kTiers;
  label.elements = elements;
  const std::lock_guard lock(pushing_);
  thread_.push([this, label, move = std::move(move)] {
    const TraceScope scope(*trace_, label);
    move();
    return std::uint64_t{0};
  });
  return ++pushed_;
}

void TierMover::copy_now(const Tensor& to, const Tensor& from) { copy_on(stream_, to, from); }

TierMover::Ticket TierMover::copy(const Tensor& to, const Tensor& from, TraceLabel label) {
  return copy_after({}, to, from, label);
}

TierMover::Ticket TierMover::copy_after(const Event& event, const Tensor& to, const Tensor& from,
                                        TraceLabel label) {
  return push(label, to.elements(), [this, event, to, from] {
    event.wait();
    copy_now(to, from);
  });
}

TierMover::Ticket TierMover::store_gradients(std::size_t block, const Tensor& from,
                                             const Event& made) {
  return push(label_of("store", "gradients", block), from.elements(), [this, block, from, made] {
    made.wait();
    replica_->gradient_file()->store(block, from);
  });
}

TierMover::Ticket TierMover::fetch_gradients(std::size_t block, std::size_t first, const Tensor& to,
                                             const Event& free) {
  const std::size_t byte = first * size_of(to.dtype());
  return push(label_of("fetch", "gradients", block), to.elements(), [this, block, byte, to, free] {
    free.wait();
    replica_->gradient_file()->fetch(block, byte, to);
  });
}

void TierMover::read_parameters(std::size_t block, const Tensor& to) {
  reader_->forget();
  std::int64_t done = 0;
  reader_->read(replica_->filed_states().size() - 1, replica_->my_range(block),
                [&](const Tensor& some) {
                  const auto count = static_cast<std::int64_t>(some.elements());
                  copy_now(to.slice(done, count), some);
                  done += count;
                });
}

TierMover::Ticket TierMover::fetch_parameters(std::size_t gather, const Event& free) {
  const std::size_t unit = replica_->plan().gathers[gather].unit;
  const Tensor to = replica_->gathered(gather);
  const TraceLabel label = label_of("fetch", "block", unit);
  if (!reader_) {
    const nn::FlatRange range = replica_->flat().range(unit);
    const Tensor buffer = replica_->states().parameters;
    return copy_after(free, to,
                      buffer.slice(static_cast<std::int64_t>(range.first),
                                   static_cast<std::int64_t>(range.elements)),
                      label);
  }
  return push(label, to.elements(), [this, unit, to, free] {
    free.wait();
    read_parameters(unit, to);
  });
}

// Tasks that are pushed meanwhile lengthen the wait, which is harmless: tasks wait for nothing.
void TierMover::await(Ticket ticket) { thread_.wait(pushed_ - ticket); }

void TierMover::wait_for(Ticket ticket) {
  if (thread_.under_way() <= pushed_ - ticket) {
    await(ticket);  // throws what a task threw
    return;
  }
  const TraceScope scope(*trace_, {.lane = TraceLane::kWaiting, .kind = "tiers"});
  await(ticket);
}

void TierMover::begin_micro_batch(bool adds) {
  if (!has_work()) return;
  wait();
  adds_ = adds;
  trains_ = true;
}

// Earlier steps have finished with their memory. So memory whose lifetime begins here is free as
// soon as its previous content has been copied away.
void TierMover::enter(std::size_t step) {
  if (!has_work()) return;
  const nn::MemoryPlan& plan = replica_->plan();
  const Event free = replica_->ops().record();
  const auto at = static_cast<int>(step);
  for (std::size_t i = 0; moves_parameters_ && i < plan.gathers.size(); ++i) {
    if (plan.gathers[i].starts != at) continue;
    gathers_[i] = fetch_parameters(i, free);
  }
  if (trains_) fetch_kept(at, free);
  if (one_by_one_ && (reader_ || replica_->activation_file() != nullptr)) wait();
  for (std::size_t i = 0; moves_parameters_ && i < plan.gathers.size(); ++i) {
    if (plan.gathers[i].needed == at) wait_for(gathers_[i]);
  }
  for (std::size_t i = 0; trains_ && i < plan.absences.size(); ++i) {
    if (plan.absences[i].made + 2 == at) wait_for(left_[i]);
    if (plan.absences[i].needed == at) wait_for(back_[i]);
  }
}

// All that comes from a file does so in one go.
void TierMover::fetch_kept(int step, const Event& free) {
  constexpr TraceLabel kLabel{.kind = "fetch", .of = "activations"};
  const nn::MemoryPlan& plan = replica_->plan();
  std::vector<io::StagedFile::Part> parts;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < plan.absences.size(); ++i) {
    if (plan.absences[i].needed - 1 != step) continue;
    const nn::Replica::AbsenceViews views = replica_->absence(i);
    if (replica_->activation_file() == nullptr) {
      back_[i] = copy_after(free, views.after, views.away, kLabel);
      continue;
    }
    parts.push_back({.item = plan.absences[i].away, .first = 0, .to = views.after});
    bytes += views.after.bytes();
  }
  if (parts.empty()) return;
  const Ticket ticket = push(kLabel, bytes, [this, free, parts = std::move(parts)] {
    free.wait();
    replica_->activation_file()->fetch(parts);
  });
  for (std::size_t i = 0; i < plan.absences.size(); ++i) {
    if (plan.absences[i].needed - 1 == step) back_[i] = ticket;
  }
}

void TierMover::before_forward(std::size_t block) { enter(block); }

void TierMover::after_forward(std::size_t block) {
  if (!trains_) return;
  const nn::MemoryPlan& plan = replica_->plan();
  const Event made = plan.absences.empty() ? Event() : replica_->ops().record();
  for (std::size_t i = 0; i < plan.absences.size(); ++i) {
    if (plan.absences[i].made != static_cast<int>(block)) continue;
    const nn::Replica::AbsenceViews views = replica_->absence(i);
    constexpr TraceLabel kLabel{.kind = "store", .of = "activations"};
    left_[i] = replica_->activation_file() == nullptr
                   ? copy_after(made, views.away, views.before, kLabel)
                   : push(kLabel, views.before.bytes(),
                          [this, made, item = plan.absences[i].away, from = views.before] {
                            made.wait();
                            replica_->activation_file()->store(item, from);
                          });
  }
  if (one_by_one_ && replica_->activation_file() != nullptr) wait();
}

void TierMover::before_backward(std::size_t block) {
  if (!has_work()) return;
  enter(2 * replica_->model().size() - 1 - block);
  if (!moves_gradients_) return;
  // Gradients of the block before the last one had their memory until now.
  if (block + 2 < stored_.size()) wait_for(stored_[block + 2]);
  for (std::size_t unit = 0; unit < first_writers_.size(); ++unit) {
    if (first_writers_[unit] == block) begin_gradients(unit);
  }
}

void TierMover::begin_gradients(std::size_t block) {
  const Tensor written = replica_->gradients_written(block);
  if (!ops::is_given(written)) return;
  if (!adds_) {
    replica_->ops().in_order([&] { fill_zero(written); });
  } else if (replica_->gradient_file() != nullptr) {
    wait_for(fetch_gradients(block, 0, written, replica_->ops().record()));
  } else {
    wait_for(copy_after(replica_->ops().record(), written, replica_->gradients_of(block),
                        label_of("fetch", "gradients", block)));
  }
}

void TierMover::after_backward(std::size_t block) {
  if (moves_gradients_) {
    const Tensor written = replica_->gradients_written(block);
    if (ops::is_given(written)) {
      const Event made = replica_->ops().record();
      stored_[block] = replica_->gradient_file() != nullptr
                           ? store_gradients(block, written, made)
                           : copy_after(made, replica_->gradients_of(block), written,
                                        label_of("store", "gradients", block));
      if (one_by_one_ && replica_->gradient_file() != nullptr) wait();
    }
  }
  if (block == 0) trains_ = false;
}

void TierMover::await_gradients(std::size_t block) {
  if (moves_gradients_) await(stored_[block]);
}

}  // namespace lockstep::parallel
