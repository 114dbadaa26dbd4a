// The rounds of bsp: what it takes until the slices of one are updated.
#include <algorithm>
#include <cmath>

#include "lockstep/optim/gradient_norm.h"
#include "lockstep/parallel/server/service/slice_service.h"

namespace lockstep::parallel {

SliceService::Round& SliceService::round(std::uint64_t number) {
  Round& round = rounds_[number];
  round.requested.resize(index(workers_));
  return round;
}

void SliceService::request(int worker, const Header& header, std::span<const std::byte> payload) {
  const RoundRequest request = RoundRequest::decode(payload);
  ++all_requests_;
  if (!adds_up()) {
    if (!updates_before_) updates_before_ = request.updates * workers_;
    std::map<std::uint64_t, RoundRequest>& of_worker = requests_[index(worker)];
    std::erase_if(of_worker, [&](const auto& one) { return one.first + 1 < header.round; });
    of_worker[header.round] = request;
    return;
  }
  if (header.round < current_) {
    fail(ErrorCode::kProtocol, "worker {} asks for the update of round {} in round {}", worker,
         header.round, current_);
  }
  Round& asked = round(header.round);
  if (asked.requested[index(worker)]) {
    fail(ErrorCode::kProtocol, "worker {} asks twice for the update of round {}", worker,
         header.round);
  }
  if (asked.requests == 0) asked.request = request;
  if (asked.request != request) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("workers disagree about update {}: worker {} asks for learning rate {} and "
                    "loss scale {}, another for {} and {}; all workers need the same settings",
                    header.round, worker, request.rate, request.loss_scale, asked.request.rate,
                    asked.request.loss_scale),
        {worker});
  }
  asked.requested[index(worker)] = true;
  if (++asked.requests == workers_ && header.round == current_) go_on();
}

Priority SliceService::priority_of(std::size_t slice) const {
  return parallel::priority_of(layout_.slices[slice], options_.schedule);
}

// Queues the next thing to do with a slice, if there is all that it takes.
void SliceService::schedule(std::size_t slice) {
  SliceState& state = slices_[slice];
  const bool may_update = round(current_).requests == workers_ &&
                          (!layout_.needs_norm() || gradient_scale_.has_value());
  const bool may_square = layout_.needs_norm() && !state.squared;
  const bool waits_for_rows = !state.owed.empty() && (layout_.needs_norm() || state.apart);
  if (state.came < workers_ || waits_for_rows || state.queued || (!may_update && !may_square)) {
    return;
  }
  state.queued = true;
  const bool by_block = options_.schedule == SliceSchedule::kPriority;
  work_.insert({by_block ? layout_.slices[slice].block : worked_++, slice});
}

void SliceService::work() {
  const std::size_t slice = work_.begin()->second;
  work_.erase(work_.begin());
  SliceState& state = slices_[slice];
  state.queued = false;
  if (!layout_.needs_norm() || state.squared) return update_round(slice);
  squares_[slice] = store_.squares(slice);
  state.squared = true;
  ++squared_;
  report_squares();
}

void SliceService::report_squares() {
  const Round& asked = round(current_);
  if (!layout_.needs_norm() || gradient_scale_ || asked.requests < workers_ || reported_ ||
      squared_ < store_.slices().size()) {
    return;
  }
  reported_ = true;
  std::vector<double> sums;
  for (const auto& [slice, squares] : squares_)
    sums.insert(sums.end(), squares.begin(), squares.end());
  squares_.clear();
  wire_.to_server(
      0, small_message({.kind = Kind::kSums, .round = current_, .number = asked.request.loss_scale},
                       Packer().list(std::span<const double>(sums)).take()));
}

void SliceService::verdict(const Header& header) {
  if (!adds_up() || header.round != current_ || gradient_scale_ ||
      squared_ < store_.slices().size()) {
    fail(ErrorCode::kProtocol, "received the norm of round {} in round {}", header.round, current_);
  }
  const double loss_scale = round(current_).request.loss_scale;
  gradient_scale_ = optim::clip_factor(header.number, layout_.optimizer.max_grad_norm) / loss_scale;
  if (std::isfinite(header.number)) return go_on();
  for (int worker = 0; worker < workers_; ++worker) {
    wire_.to_worker(worker, small_message({.kind = Kind::kKept, .round = current_}));
  }
  for (const std::size_t slice : store_.slices()) finish_slice(slice, false);
  if (store_.slices().empty()) finish_round();
}

// Does what a round whose update has been asked for allows.
void SliceService::go_on() {
  if (round(current_).requests < workers_) return;
  if (store_.slices().empty() && (!layout_.needs_norm() || gradient_scale_)) return finish_round();
  for (const std::size_t slice : store_.slices()) schedule(slice);
  report_squares();
}

void SliceService::update_round(std::size_t slice) {
  const RoundRequest& request = round(current_).request;
  const optim::UpdateStep step{.step = request.updates + 1,
                               .rate = request.rate,
                               .gradient_scale = gradient_scale_.value_or(1 / request.loss_scale)};
  SliceState& state = slices_[slice];
  const std::size_t elements = layout_.slices[slice].range.elements;
  if (state.owed.empty()) {
    store_.update_by_sum(slice, step, state.apart.value_or(Runs{{0, elements}}));
    return finish_slice(slice, true);
  }
  state.apart.emplace();
  for (const auto& [worker, runs] : state.owed) state.apart = united(*state.apart, runs);
  store_.update_by_sum(slice, step, rest_of(*state.apart, elements));
  for (int worker = 0; worker < workers_; ++worker) {
    wire_.to_worker(worker, message(Kind::kEarly, slice, store_.pulled(slice)));
  }
}

void SliceService::finish_slice(std::size_t slice, bool changed) {
  SliceState& state = slices_[slice];
  state.version = current_;
  state.came = 0;
  state.squared = false;
  if (state.apart) {
    send_rows(slice);
  } else {
    for (int worker = 0; changed && worker < workers_; ++worker) send_parameters(worker, slice, 0);
  }
  state.apart.reset();
  if (const auto waiting = collects_.find(slice); waiting != collects_.end()) {
    collects_.erase(waiting);
    send_states(slice);
  }
  if (++updated_ == store_.slices().size()) finish_round();
}

void SliceService::finish_round() {
  tell_window(current_);
  rounds_.erase(current_++);
  updated_ = 0;
  squared_ = 0;
  reported_ = false;
  gradient_scale_.reset();
  since_ = kNoDeadline;
  go_on();  // a server without slices can be behind
}

Deadline SliceService::deadline(std::chrono::nanoseconds timeout) const {
  return since_ == kNoDeadline ? kNoDeadline : since_ + timeout;
}

std::vector<int> SliceService::missing() const {
  std::vector<int> workers;
  for (int worker = 0; worker < workers_; ++worker) {
    const auto lacks = [&](std::size_t slice) {
      const SliceState& state = slices_[slice];
      return state.version < current_ &&
             (state.pushed[index(worker)] < current_ || state.owed.contains(worker));
    };
    if (std::ranges::any_of(store_.slices(), lacks)) workers.push_back(worker);
  }
  return workers;
}

}  // namespace lockstep::parallel
