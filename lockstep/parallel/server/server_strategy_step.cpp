// A step of a worker with parameter servers, up to its update.
#include <algorithm>
#include <cmath>

#include "lockstep/base/system/clock.h"
#include "lockstep/optim/gradient_norm.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/server/server_strategy.h"
#include "lockstep/parallel/server/wire/step_messages.h"

namespace lockstep::parallel {

std::optional<Share> ServerStrategy::next(const StepPlan& plan, std::int64_t steps,
                                          std::int64_t last_step) {
  if (is_bsp()) {
    if (steps >= last_step) return std::nullopt;
    step_ = steps + 1;
    return share_of(plan, step_, worker(), workers());
  }
  const std::string answer = waits_.begin_with([&] {
    link_->ask(small_message({.kind = Kind::kTicket}, Packer().add(steps).add(last_step).take()));
    return link_->answer(Kind::kShare);
  });
  Unpacker unpacker(std::as_bytes(std::span(answer)));
  const auto share = unpacker.take<std::int64_t>();
  costs_ = unpacker.list<StepCost>();
  unpacker.finish();
  if (share < 0) return std::nullopt;
  step_ = share / workers() + 1;
  return share_of(plan, step_, static_cast<int>(share % workers()), workers());
}

void ServerStrategy::stop() {
  if (!is_bsp()) link_->ask(small_message({.kind = Kind::kStop}));
}

StepStart ServerStrategy::begin_step(const StepStart& mine) {
  if (std::exchange(has_master_, false)) {
    // In f32 they are the master copy, and servers' answers will come there at any time.
    if (replica_->setup().dtype == DType::kF32) replica_->before_change_of_all();
    link_->round_parameters();
    if (mirror_) mirror_->forget();
  }
  if (!is_bsp()) return mine;
  scale_residual(mine.loss_scale);
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to begin"});
  const std::string answer = waits_.begin_with([&] {
    link_->ask(small_message({.kind = Kind::kBegin}, encode(mine)));
    return link_->answer(Kind::kTotals);
  });
  StepStart totals = decode_start(std::as_bytes(std::span(answer)));
  totals.loss_scale = mine.loss_scale;
  return totals;
}

void ServerStrategy::send_request(const UpdateRequest& request, double gradient_scale) {
  const RoundRequest asked{.updates = request.updates,
                           .rate = request.rate,
                           .loss_scale = request.loss_scale,
                           .gradient_scale = gradient_scale};
  for (int server = 0; server < job_.options.servers; ++server) {
    link_->post(server,
                small_message({.kind = Kind::kRequest, .round = round_ + 1}, asked.encode()));
  }
  requested_ = asked;
  window_.ask(round_ + 1);
}

void ServerStrategy::expect_update(const UpdateRequest& request) {
  // With asp and ssp clipping comes first, and that needs all gradients.
  if (is_bsp() || job_.optimizer.max_grad_norm == 0) send_request(request, 1);
}

void ServerStrategy::begin_micro_batch(std::int64_t index, std::int64_t count) {
  const bool tree = job_.reduction == Reduction::kTree;
  if (tree && index > 0) tree_.keep(replica_->states().gradients, index - 1);
  micro_batch_ = index;
  micro_batches_ = count;
  zeroed_ = !tree && index > 0;
  if (index > 0) return;
  in_step_ = true;
  added_up_ = false;
  next_slice_ = 0;
  owed_.clear();
}

void ServerStrategy::await_exposed(std::optional<std::size_t> block) {
  if (link_->is_back(block)) return;
  const TraceScope scope(trace(),
                         {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "parameters"});
  const auto begin = SteadyClock::now();
  link_->await(block);
  if (in_step_) waits_.add(seconds_since(begin));
}

void ServerStrategy::before_forward(std::size_t block) {
  await_parameters(block);
  if (mirror_) mirror_->bring(block);
}

void ServerStrategy::await_parameters(std::size_t block) {
  if (job_.options.schedule == SliceSchedule::kPriority) {
    await_exposed(block);
  } else {
    await_exposed(std::nullopt);
  }
}

// At the first backward of a step all blocks have run forward, so all slices are back and no
// gradient is in flight. At the last one those of the table may be in flight.
void ServerStrategy::before_backward(std::size_t block) {
  if (!std::exchange(zeroed_, true)) replica_->zero_gradients();
  if (block == 0 && !owed_.empty()) await_table();
}

void ServerStrategy::finished_up_to(std::size_t, std::size_t end) {
  if (leaves_early()) push_up_to(end);
}

void ServerStrategy::after_backward(std::size_t block) {
  if (!leaves_early()) return;
  push_up_to(replica_->flat().range(block).end());
  if (table_ && block == table_->after) push_table();
}

// Whether slices are pushed during the backward under way.
bool ServerStrategy::leaves_early() const {
  return micro_batch_ + 1 == micro_batches_ && job_.options.schedule != SliceSchedule::kFifo &&
         (is_bsp() || requested_.has_value());
}

// All of it is complete but for the rows that backward of the first block adds to.
void ServerStrategy::push_table() {
  const std::span<const std::int32_t> rows = replica_->pending_rows().as<const std::int32_t>();
  for (std::size_t slice = table_->first; slice < table_->end; ++slice) {
    owed_.push_back(runs_of_rows(rows, table_->width, table_->offset, layout_.slices[slice].range));
    if (!owed_.back().empty()) link_->owe(slice, owed_.back(), round_ + 1);
  }
  replica_->ops().synchronize();
  table_pushed_ = SteadyClock::now();
  link_->push(table_->first, table_->end, round_ + 1, step_);
}

// Until the rows may be added to.
void ServerStrategy::await_table() {
  if (link_->are_taken(table_->first, table_->end)) return;
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "table"});
  const auto begin = SteadyClock::now();
  link_->await_taken(table_->first, table_->end, table_pushed_);
  waits_.add(seconds_since(begin));
}

// Pushes the rows of slices [first, end) that have left early.
void ServerStrategy::push_rows(std::size_t first, std::size_t end) {
  for (std::size_t slice = first; slice < end; ++slice) {
    const Runs& runs = owed_[slice - table_->first];
    if (!runs.empty()) link_->push_rows(slice, runs, round_ + 1);
  }
}

// The slices that lie before that element of the flat buffer, as far as they have not left. Slices
// and what backward finishes with have the order of the flat buffer.
void ServerStrategy::push_up_to(std::size_t end) {
  const std::size_t first = next_slice_;
  while (next_slice_ < layout_.slices.size() && layout_.slices[next_slice_].range.end() <= end) {
    ++next_slice_;
  }
  if (first == next_slice_) return;
  if (!mirror_) replica_->ops().synchronize();
  if (job_.reduction == Reduction::kTree && !added_up_) {
    const std::size_t begin = layout_.slices[first].range.first;
    const nn::FlatRange range{begin, layout_.slices[next_slice_ - 1].range.end() - begin};
    const Tensor part = replica_->states().slice(range).gradients;
    tree_.finish(part, begin, micro_batches_ - 1);
  }
  if (mirror_) return push_later(first);
  if (owed_.empty()) return link_->push(first, next_slice_, round_ + 1, step_);
  const std::size_t table = std::clamp(table_->first, first, next_slice_);
  const std::size_t behind = std::clamp(table_->end, first, next_slice_);
  link_->push(first, table, round_ + 1, step_);
  push_rows(table, behind);
  link_->push(behind, next_slice_, round_ + 1, step_);
}

void ServerStrategy::push_later(std::size_t first) {
  const std::size_t begin = layout_.slices[first].range.first;
  const nn::FlatRange range{begin, layout_.slices[next_slice_ - 1].range.end() - begin};
  leaving_.push_back({mirror_->send_gradients(range), first, next_slice_});
  push_arrived(false);
}

// Backward is queued long before it runs: most of it is pushed by update(), as it arrives.
void ServerStrategy::push_arrived(bool all) {
  for (; !leaving_.empty() && (all || leaving_.front().arrived.done()); leaving_.pop_front()) {
    leaving_.front().arrived.wait();
    link_->push(leaving_.front().first, leaving_.front().end, round_ + 1, step_);
  }
}

UpdateResult ServerStrategy::update(const UpdateRequest& request) {
  if (!is_bsp()) return update_own(request);
  if (!requested_) send_request(request, 1);
  if (requested_->rate != request.rate || requested_->updates != request.updates ||
      requested_->loss_scale != request.loss_scale) {
    fail(ErrorCode::kInvalidArgument,
         "update() was called for a different update than expect_update() announced");
  }
  if (micro_batches_ == 0) {
    await_exposed(std::nullopt);
    link_->push_zeros(round_ + 1);
  } else {
    push_up_to(replica_->flat().elements());
    push_arrived(true);
  }
  if (mirror_) mirror_->forget();
  ++round_;
  requested_.reset();
  in_step_ = false;
  return await_norm();
}

UpdateResult ServerStrategy::await_norm() {
  UpdateResult result;
  result.has_norm = layout_.needs_norm();
  if (!result.has_norm) return result;
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "norm"});
  const std::string answer = waits_.during([&] { return link_->answer(Kind::kNorm); });
  Unpacker unpacker(std::as_bytes(std::span(answer)));
  result.gradient_norm = unpacker.take<double>();
  result.skipped = !std::isfinite(result.gradient_norm);
  return result;
}

// asp and ssp: the gradients of this worker alone.
UpdateResult ServerStrategy::update_own(const UpdateRequest& request) {
  UpdateResult result;
  result.has_norm = job_.optimizer.max_grad_norm > 0;
  in_step_ = false;
  if (micro_batches_ == 0) {
    requested_.reset();
    return result;
  }
  if (!requested_) {
    double scale = 1;
    if (result.has_norm) {
      replica_->ops().synchronize();
      if (job_.reduction == Reduction::kTree) {
        tree_.finish(replica_->states().gradients, 0, micro_batches_ - 1);
        added_up_ = true;
      }
      result.gradient_norm =
          chunked_gradient_norm(replica_->ops(), replica_->flat(), replica_->states().gradients,
                                replica_->sums_of_squares());
      result.skipped = !std::isfinite(result.gradient_norm);
      scale = optim::clip_factor(result.gradient_norm, job_.optimizer.max_grad_norm);
    }
    if (result.skipped) return result;
    send_request(request, scale);
  }
  push_up_to(replica_->flat().elements());
  push_arrived(true);
  if (mirror_) mirror_->forget();
  ++round_;
  requested_.reset();
  return result;
}

}  // namespace lockstep::parallel
