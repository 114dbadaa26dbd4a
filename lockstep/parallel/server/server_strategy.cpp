#include "lockstep/parallel/server/server_strategy.h"

#include <cmath>

#include "lockstep/base/clock.h"
#include "lockstep/base/content_hash.h"
#include "lockstep/base/log.h"
#include "lockstep/optim/gradient_norm.h"
#include "lockstep/parallel/gradient_chunks.h"
#include "lockstep/parallel/server/step_messages.h"

namespace lockstep::parallel {
namespace {

Error left_in_a_step(int worker) {
  return {ErrorCode::kPeerLost,
          fmt::format("worker {} (rank {}) has left in the middle of a step", worker, worker),
          {worker}};
}

}  // namespace

ServedLayout layout_for(const ParameterServerJob& job, const nn::MemoryPlan& plan) {
  ServedLayout layout{.pieces = {},
                      .parameter = plan.setup.dtype,
                      .gradient = plan.setup.gradient,
                      .optimizer = job.optimizer};
  const bool whole_chunks = layout.needs_norm() && job.options.consistency == Consistency::kBsp;
  layout.pieces = cut_pieces(plan.flat, job.options.piece_mb, whole_chunks, job.options.servers);
  return layout;
}

ServerStrategy::ServerStrategy(const ParameterServerJob& job, std::unique_ptr<Meeting> meeting,
                               RunServer run_server)
    : job_(job), meeting_(std::move(meeting)) {
  if (meeting_->server()) {
    server_ = std::thread([this, run_server] {
      try {
        run_server(job_, *meeting_);
      } catch (const std::exception& error) {
        // Workers hear of it from the server itself, and end with it.
        log_info("parameter server {} ended: {}", *meeting_->server(), error.what());
      }
    });
  }
  try {
    link_ = std::make_unique<WorkerLink>(job_.options, meeting_->map(), meeting_->connect_worker(),
                                         job_.comm.timeout, job_.comm.emulated_link());
  } catch (...) {
    if (server_.joinable()) server_.join();
    throw;
  }
}

ServerStrategy::~ServerStrategy() {
  try {
    if (in_step_) {
      link_->blame(left_in_a_step(worker()));
    } else {
      link_->await_all();  // what was pushed counts
    }
  } catch (const Error& error) {
    log_info("worker {} leaves: {}", worker(), error.what());
  }
  link_.reset();
  if (server_.joinable()) server_.join();
}

void ServerStrategy::start(nn::Replica& replica) {
  if (!is_bsp() && replica.setup().dtype == DType::kF16) {
    fail(ErrorCode::kUnsupported,
         "f16 scales its loss by what all workers see in a step, which parallel.consistency = "
         "\"{}\" has not; train in bf16 or f32, or set parallel.consistency = \"bsp\"",
         parallel::name(job_.options.consistency));
  }
  if (replica.ops().device() != Device{}) {
    fail(ErrorCode::kUnsupported, "parameter servers serve replicas in the memory of a CPU only");
  }
  if (job_.reduction == Reduction::kTree) {
    tree_ = TreeSum(replica.flat().elements(), job_.most_micro_batches);
  }
  replica_ = &replica;
  layout_ = layout_for(job_, replica.plan());
  pieces_of_.resize(replica.flat().blocks());
  for (std::size_t piece = 0; piece < layout_.pieces.size(); ++piece) {
    pieces_of_[layout_.pieces[piece].block].push_back(piece);
  }
  link_->attach(layout_, replica.states(), replica.flat().blocks());
  link_->expect_all();
  if (worker() == 0) send_states();
  for (int server = 0; server < job_.options.servers; ++server) {
    OutMessage ready =
        small_message({.kind = Kind::kReady}, Packer().text(hash_of(layout_)).take());
    ready.priority = 1;
    link_->post(server, std::move(ready));
  }
  link_->await_all();
  compare_parameters();
}

void ServerStrategy::send_states() {
  for (int server = 0; server < job_.options.servers; ++server) {
    link_->post(server, small_message({.kind = Kind::kLayout}, encode_layout(layout_)));
  }
  const nn::States& states = replica_->states();
  const Tensor rows[kStateRows] = {states.master, states.moment, states.variance, states.velocity};
  for (std::size_t piece = 0; piece < layout_.pieces.size(); ++piece) {
    const nn::FlatRange range = layout_.pieces[piece].range;
    for (std::size_t row = 0; row < kStateRows; ++row) {
      if (!layout_.has(static_cast<StateRow>(row))) continue;
      const Tensor part = rows[row].slice(static_cast<std::int64_t>(range.first),
                                          static_cast<std::int64_t>(range.elements));
      link_->post(layout_.pieces[piece].server,
                  {.header = {.kind = Kind::kState,
                              .piece = static_cast<std::uint32_t>(piece),
                              .number = static_cast<double>(row),
                              .bytes = part.bytes()},
                   .payload = {part.data(), part.bytes()},
                   .owner = nullptr,
                   .priority = 1});
    }
  }
}

void ServerStrategy::compare_parameters() {
  const Tensor& row = replica_->states().parameters;
  link_->ask(small_message({.kind = Kind::kCheck},
                           content_hash({reinterpret_cast<const char*>(row.data()), row.bytes()})));
  link_->answer(Kind::kChecked);
}

// ---- a step

std::optional<Share> ServerStrategy::next(const StepPlan& plan, std::int64_t steps,
                                          std::int64_t last_step) {
  if (is_bsp()) {
    if (steps >= last_step) return std::nullopt;
    return share_of(plan, steps + 1, worker(), workers());
  }
  link_->ask(small_message({.kind = Kind::kTicket}, Packer().add(steps).add(last_step).take()));
  const std::string answer = link_->answer(Kind::kShare);
  Unpacker unpacker(std::as_bytes(std::span(answer)));
  const auto share = unpacker.take<std::int64_t>();
  unpacker.finish();
  if (share < 0) return std::nullopt;
  return share_of(plan, share / workers() + 1, static_cast<int>(share % workers()), workers());
}

StepStart ServerStrategy::begin_step(const StepStart& mine) {
  if (!is_bsp()) return mine;
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to begin"});
  link_->ask(small_message({.kind = Kind::kBegin}, encode(mine)));
  const std::string answer = link_->answer(Kind::kTotals);
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
}

void ServerStrategy::expect_update(const UpdateRequest& request) {
  // With asp and ssp clipping comes first, and that needs all gradients.
  if (is_bsp() || job_.optimizer.clip == 0) send_request(request, 1);
}

void ServerStrategy::begin_micro_batch(std::int64_t index, std::int64_t count) {
  const bool tree = job_.reduction == Reduction::kTree;
  if (tree && index > 0) tree_.keep(replica_->states().gradients.as<float>(), index - 1);
  micro_batch_ = index;
  micro_batches_ = count;
  zeroed_ = !tree && index > 0;
  if (index > 0) return;
  in_step_ = true;
  added_up_ = false;
  exposed_seconds_ = 0;
  blocks_left_ = pieces_of_.size();
}

void ServerStrategy::await_exposed(std::optional<std::size_t> block) {
  if (link_->is_back(block)) return;
  const TraceScope scope(trace(),
                         {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "parameters"});
  const auto begin = SteadyClock::now();
  link_->await(block);
  if (in_step_) exposed_seconds_ += seconds_since(begin);
}

void ServerStrategy::before_forward(std::size_t block) {
  if (job_.options.schedule == PieceSchedule::kPriority) {
    await_exposed(block);
  } else {
    await_exposed(std::nullopt);
  }
}

// By now all blocks have been forward, hence all pieces are back and no gradient is on its way.
void ServerStrategy::before_backward(std::size_t) {
  if (!std::exchange(zeroed_, true)) replica_->zero_gradients();
}

void ServerStrategy::after_backward(std::size_t block) {
  const bool may_leave = is_bsp() || requested_.has_value();
  if (micro_batch_ + 1 < micro_batches_ || job_.options.schedule == PieceSchedule::kFifo ||
      !may_leave) {
    return;
  }
  replica_->ops().synchronize();
  push_block(block);
  blocks_left_ = block;
}

void ServerStrategy::push_block(std::size_t block) {
  if (job_.reduction == Reduction::kTree && !added_up_) {
    const nn::FlatRange range = replica_->flat().range(block);
    const Tensor part = replica_->states().slice(range).gradients;
    if (range.elements > 0) tree_.finish(part.as<float>(), range.first, micro_batches_ - 1);
  }
  if (!pieces_of_[block].empty()) link_->push(pieces_of_[block], round_ + 1);
}

void ServerStrategy::push_rest() {
  replica_->ops().synchronize();
  while (blocks_left_ > 0) push_block(--blocks_left_);
}

UpdateResult ServerStrategy::update(const UpdateRequest& request) {
  if (!is_bsp()) return update_own(request);
  if (!requested_) send_request(request, 1);
  if (requested_->rate != request.rate || requested_->updates != request.updates ||
      requested_->loss_scale != request.loss_scale) {
    fail(ErrorCode::kInvalidArgument, "update() is asked for another update than was expected");
  }
  if (micro_batches_ == 0) {
    await_exposed(std::nullopt);
    link_->push_zeros(round_ + 1);
  } else {
    push_rest();
  }
  ++round_;
  requested_.reset();
  in_step_ = false;
  UpdateResult result;
  result.has_norm = layout_.needs_norm();
  if (result.has_norm) {
    const TraceScope scope(trace(),
                           {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "norm"});
    const auto begin = SteadyClock::now();
    const std::string answer = link_->answer(Kind::kNorm);
    exposed_seconds_ += seconds_since(begin);
    Unpacker unpacker(std::as_bytes(std::span(answer)));
    result.gradient_norm = unpacker.take<double>();
    result.skipped = !std::isfinite(result.gradient_norm);
  }
  return result;
}

// asp and ssp: the gradients of this worker alone.
UpdateResult ServerStrategy::update_own(const UpdateRequest& request) {
  UpdateResult result;
  result.has_norm = job_.optimizer.clip > 0;
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
        tree_.finish(replica_->states().gradients.as<float>(), 0, micro_batches_ - 1);
        added_up_ = true;
      }
      result.gradient_norm =
          chunked_gradient_norm(replica_->ops(), replica_->flat(), replica_->states().gradients,
                                replica_->sums_of_squares());
      result.skipped = !std::isfinite(result.gradient_norm);
      scale = optim::clip_factor(result.gradient_norm, job_.optimizer.clip);
    }
    if (result.skipped) return result;
    send_request(request, scale);
  }
  push_rest();
  ++round_;
  requested_.reset();
  return result;
}

StepSummary ServerStrategy::end_step(const StepEnd& mine) {
  const WorkerLink::Cost cost = link_->take_cost();
  StepEnd end = mine;
  end.cost.compute_seconds -= exposed_seconds_;
  end.cost.communication_seconds = cost.seconds;
  end.cost.exposed_seconds = exposed_seconds_;
  end.cost.bytes_sent = cost.bytes;
  end.cost.staleness = cost.staleness;
  if (!is_bsp()) {
    link_->ask(small_message({.kind = Kind::kDone}));
    StepSummary summary;
    for (const double loss : end.losses) summary.loss += loss;
    summary.costs.push_back(end.cost);
    return summary;
  }
  const TraceScope scope(trace(), {.lane = TraceLane::kWaiting, .kind = "agree", .of = "to end"});
  link_->ask(small_message({.kind = Kind::kEnd}, encode(end)));
  const std::string answer = link_->answer(Kind::kSummary);
  return decode_summary(std::as_bytes(std::span(answer)));
}

void ServerStrategy::collect() {
  link_->await_all();
  if (worker() != 0) return;
  link_->collect(round_);
  replica_->round_parameters();
}

}  // namespace lockstep::parallel
