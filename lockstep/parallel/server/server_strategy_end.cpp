// The end of a step of a worker with parameter servers, what a checkpoint needs of it, and the end
// of the run.
#include <algorithm>

#include "lockstep/parallel/server/server_strategy.h"
#include "lockstep/parallel/server/wire/step_messages.h"
#include "lockstep/parallel/trace/clock_offset.h"

namespace lockstep::parallel {

StepSummary ServerStrategy::end_step(const StepEnd& mine) {
  const WorkerLink::Cost cost = link_->take_cost();
  StepEnd end = mine;
  end.cost.communication_seconds = cost.seconds;
  end.cost = waits_.cost_of(end.cost);
  end.cost.bytes_sent = cost.bytes;
  end.cost.staleness = cost.staleness;
  if (!is_bsp()) {
    link_->ask(small_message({.kind = Kind::kDone}, encode(end.cost)));
    StepSummary summary;
    for (const double loss : end.losses) summary.loss += loss;
    summary.costs = costs_;
    summary.costs.resize(static_cast<std::size_t>(workers()), {.known = false});
    summary.costs[static_cast<std::size_t>(worker())] = end.cost;
    return summary;
  }
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to end"});
  link_->ask(small_message({.kind = Kind::kEnd}, encode(end)));
  const std::string answer = link_->answer(Kind::kSummary);
  StepSummary summary = decode_summary(std::as_bytes(std::span(answer)));
  waits_.add_agreement_to_end(summary.costs);
  return summary;
}

void ServerStrategy::collect() {
  link_->await_all();
  if (worker() != 0) return;
  replica_->before_change_of_all();
  link_->collect(round_);
  if (mirror_ && replica_->setup().dtype == DType::kF32) {
    mirror_->forget();
    mirror_->bring(replica_->flat().blocks() - 1);
    replica_->ops().synchronize();
  }
  replica_->round_parameters();
  if (mirror_) mirror_->keep();
  has_master_ = true;
}

void ServerStrategy::scale_residual(double loss_scale) {
  const double factor = loss_scale / std::exchange(residual_scale_, loss_scale);
  if (factor == 1) return;
  link_->await_all();
  for (const std::span<float> kept : {link_->residual(), link_->velocity()}) {
    for (float& value : kept) value *= static_cast<float>(factor);
  }
}

std::vector<Residual> ServerStrategy::residuals() {
  if (!is_bsp()) return {};
  link_->await_all();
  scale_residual(1);
  const std::span<float> residual = link_->residual();
  if (residual.empty()) return {};
  std::vector<Residual> parts{{.range = {0, residual.size()}, .values = residual}};
  if (const std::span<float> velocity = link_->velocity(); !velocity.empty()) {
    parts.push_back(
        {.range = {0, velocity.size()}, .values = velocity, .kind = Residual::Kind::kVelocity});
  }
  return parts;
}

// Nanoseconds from this worker's clock to that of server 0.
std::int64_t ServerStrategy::offset_of_clock() {
  std::string identity;
  const auto ask = [&] {
    link_->ask(small_message({.kind = Kind::kClock}));
    const std::string answer = link_->answer(Kind::kTime);
    Unpacker unpacker(std::as_bytes(std::span(answer)));
    const auto time = unpacker.take<std::int64_t>();
    identity = unpacker.text();
    unpacker.finish();
    return time;
  };
  ask();
  if (!identity.empty() && identity == identity_of_clock()) return 0;
  return estimated_clock_offset(ask, trace_now);
}

std::vector<RankTrace> ServerStrategy::gather_traces() {
  link_->await_all();  // which are spans too
  const std::int64_t offset = offset_of_clock();
  RankTrace mine{.rank = worker(), .spans = trace().spans()};
  for (TraceSpan& span : mine.spans) {
    span.begin += offset;
    span.end += offset;
  }
  link_->ask(small_message({.kind = Kind::kTrace}, worker() == 0 ? "" : encode(mine)));
  const std::string answer = link_->answer(Kind::kTraced);
  if (worker() != 0) return {};
  Unpacker unpacker(std::as_bytes(std::span(answer)));
  std::vector<RankTrace> all{std::move(mine)};
  for (auto others = unpacker.take<std::uint64_t>(); others > 0; --others) {
    const std::string trace = link_->answer(Kind::kTrace);
    all.push_back(decode_trace(std::as_bytes(std::span(trace))));
  }
  std::ranges::sort(all, {}, &RankTrace::rank);
  return all;
}

}  // namespace lockstep::parallel
