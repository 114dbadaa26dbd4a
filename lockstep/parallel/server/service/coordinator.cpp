#include "lockstep/parallel/server/service/coordinator.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/server/wire/step_messages.h"
#include "lockstep/parallel/trace/clock_offset.h"

namespace lockstep::parallel {

Coordinator::Coordinator(const ServerOptions& options, int workers, ServerWire& wire)
    : options_(options),
      workers_(workers),
      wire_(wire),
      costs_(static_cast<std::size_t>(workers), {.known = false}) {}

void Coordinator::take(int worker, const Header& header, std::span<const std::byte> payload) {
  const bool in_step = options_.consistency == Consistency::kBsp;
  if (header.kind == Kind::kCheck ||
      (in_step && (header.kind == Kind::kBegin || header.kind == Kind::kEnd))) {
    gather(worker, header, payload);
  } else if (!in_step && header.kind == Kind::kTicket) {
    ticket(worker, payload);
  } else if (!in_step && header.kind == Kind::kDone) {
    finish_share(worker, payload);
    hand_out();
  } else if (!in_step && header.kind == Kind::kStop) {
    stop(worker);
  } else if (!in_step && header.kind == Kind::kClock) {
    tell_time(worker);
  } else if (!in_step && header.kind == Kind::kTrace) {
    take_trace(worker, payload);
  } else {
    fail(ErrorCode::kProtocol, "worker {} sent a message '{}', which does not exist with {}",
         worker, name(header.kind), name(options_.consistency));
  }
}

void Coordinator::tell_all(Kind kind, const std::string& payload) {
  for (int worker = 0; worker < workers_; ++worker) {
    wire_.to_control(worker, small_message({.kind = kind}, payload));
  }
}

// ---- what all workers are asked

void Coordinator::gather(int worker, const Header& header, std::span<const std::byte> payload) {
  if (!question_) question_ = header.kind;
  if (*question_ != header.kind) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("workers disagree: worker {} is at the {} of a step where others are at its {}",
                    worker, name(header.kind), name(*question_)),
        {worker});
  }
  if (since_ == kNoDeadline) since_ = std::chrono::steady_clock::now();
  answers_[worker].assign(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (static_cast<int>(answers_.size()) < workers_) return;
  since_ = kNoDeadline;
  const Kind kind = *std::exchange(question_, std::nullopt);
  if (kind == Kind::kCheck) compare_hashes();
  if (kind == Kind::kBegin) add_up_starts();
  if (kind == Kind::kEnd) summarize();
  answers_.clear();
}

void Coordinator::compare_hashes() {
  std::vector<int> others;
  for (const auto& [worker, hash] : answers_) {
    if (hash != answers_.at(0)) others.push_back(worker);
  }
  if (!others.empty()) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("the parameters of worker{} {} differ from those of worker 0: what the "
                            "servers sent was damaged on its way, or a worker's memory is faulty",
                            others.size() > 1 ? "s" : "", fmt::join(others, ", ")),
                others);
  }
  tell_all(Kind::kChecked, {});
}

void Coordinator::add_up_starts() {
  StepStart totals;
  for (const auto& [worker, bytes] : answers_) {
    const StepStart start = decode_start(std::as_bytes(std::span(bytes)));
    totals.targets += start.targets;
    totals.tokens += start.tokens;
    totals.stops = totals.stops || start.stops;
  }
  tell_all(Kind::kTotals, encode(totals));
}

void Coordinator::summarize() {
  StepSummary summary;
  for (const auto& [worker, bytes] : answers_) {  // in the order of workers, hence of micro-batches
    const StepEnd end = decode_end(std::as_bytes(std::span(bytes)));
    for (const double loss : end.losses) summary.loss += loss;
    summary.costs.push_back(end.cost);
  }
  tell_all(Kind::kSummary, encode(summary));
}

Deadline Coordinator::deadline(std::chrono::nanoseconds timeout) const {
  Deadline since = since_;
  for (const Idle& idle : idle_) since = std::min(since, idle.since);
  since = std::min(since, alone_since());
  return since == kNoDeadline ? kNoDeadline : since + timeout;
}

// Since when all but those with the last shares have left, so that the run ends with them.
Deadline Coordinator::alone_since() const {
  const bool handed_out = over_ || (next_share_ >= end_ && returned_.empty());
  if (!started_ || !handed_out || under_way_.empty() || gone_.empty()) return kNoDeadline;
  if (gone_.size() + under_way_.size() < static_cast<std::size_t>(workers_)) return kNoDeadline;
  Deadline since = last_gone_;
  for (const auto& [worker, its] : under_way_) since = std::max(since, its.since);
  return since;
}

std::vector<int> Coordinator::missing() const {
  std::vector<int> workers;
  if (is_waiting()) {
    for (int worker = 0; worker < workers_; ++worker) {
      if (!answers_.contains(worker)) workers.push_back(worker);
    }
    return workers;
  }
  if (started_ && !leader_began_) return {0};
  std::int64_t oldest = std::numeric_limits<std::int64_t>::max();
  for (const auto& [worker, its] : under_way_) oldest = std::min(oldest, its.share / workers_);
  for (const auto& [worker, its] : under_way_) {
    if (its.share / workers_ == oldest) workers.push_back(worker);
  }
  return workers;
}

// ---- the norm of all gradients

void Coordinator::take_sums(int server, const Header& header, std::span<const std::byte> payload,
                            const ServedLayout& layout) {
  Unpacker unpacker(payload);
  std::vector<double> sums = unpacker.list<double>();
  unpacker.finish();
  if (sums_.empty()) sums_round_ = header.round;
  if (header.round != sums_round_ || !sums_.emplace(server, std::move(sums)).second) {
    fail(ErrorCode::kProtocol, "server {} sent sums of squares of round {} in round {}", server,
         header.round, sums_round_);
  }
  if (static_cast<int>(sums_.size()) < options_.servers) return;
  // Every server sends the sums of its slices in the order of the flat buffer.
  std::vector<double> in_order;
  std::vector<std::size_t> used(static_cast<std::size_t>(options_.servers));
  for (const Slice& slice : layout.slices) {
    const std::vector<double>& of_server = sums_.at(slice.server);
    std::size_t& at = used[static_cast<std::size_t>(slice.server)];
    for (std::size_t left = chunk_count(slice.range.elements); left > 0; --left) {
      if (at == of_server.size()) {
        fail(ErrorCode::kProtocol, "server {} sent only {} sums of squares; more were expected",
             slice.server, of_server.size());
      }
      in_order.push_back(of_server[at++]);
    }
  }
  const Header answer{.kind = Kind::kVerdict,
                      .round = header.round,
                      .number = norm_of_chunks(in_order) / header.number};
  sums_.clear();
  Header news = answer;
  news.kind = Kind::kNorm;
  for (int worker = 0; worker < workers_; ++worker) wire_.to_control(worker, small_message(news));
  for (int each = options_.servers; each-- > 0;) wire_.to_server(each, small_message(answer));
}

// ---- asp and ssp: shares

void Coordinator::ticket(int worker, std::span<const std::byte> payload) {
  Unpacker unpacker(payload);
  const auto steps = unpacker.take<std::int64_t>();
  const auto last = unpacker.take<std::int64_t>();
  unpacker.finish();
  const std::int64_t most = std::numeric_limits<std::int64_t>::max() / workers_;
  if (steps < 0 || last < 0 || steps > most || last > most) {
    fail(ErrorCode::kProtocol,
         "worker {} asks for a share of a run of {} steps, of which {} are done", worker, last,
         steps);
  }
  if (!started_) {
    next_share_ = steps * workers_;
    end_ = last * workers_;
  } else if (end_ != last * workers_) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("worker {} trains for {} steps, others for {}", worker, last, end_ / workers_),
        {worker});
  }
  started_ = true;
  if (under_way_.contains(worker) || std::ranges::count(idle_, worker, &Idle::worker) > 0) {
    fail(ErrorCode::kProtocol, "worker {} asks for a share while it has one", worker);
  }
  const bool begins = worker == 0 && !leader_began_;
  leader_began_ = leader_began_ || begins;
  idle_.insert(begins ? idle_.begin() : idle_.end(), {worker, std::chrono::steady_clock::now()});
  hand_out();
}

void Coordinator::finish_share(int worker, std::span<const std::byte> payload) {
  if (under_way_.erase(worker) == 0) {
    fail(ErrorCode::kProtocol, "worker {} finished a share that it did not have", worker);
  }
  costs_[static_cast<std::size_t>(worker)] = decode_cost(payload);
}

// Its shares go to other workers. When worker 0 stops, no share begins any more, because no
// checkpoint would hold it.
void Coordinator::stop(int worker) {
  const auto share = under_way_.find(worker);
  if (share != under_way_.end()) {
    returned_.insert(share->second.share);
    under_way_.erase(share);
  }
  over_ = over_ || worker == 0;
  hand_out();
}

void Coordinator::without(int worker) {
  std::erase_if(idle_, [&](const Idle& idle) { return idle.worker == worker; });
  costs_[static_cast<std::size_t>(worker)].known = false;
  gone_.insert(worker);
  last_gone_ = std::chrono::steady_clock::now();
  stop(worker);
  if (traces_since_ != kNoDeadline && !lacks_traces()) end_traces();
}

// Hands shares that may begin to waiting workers. Worker 0 learns of the end of the run only when
// all shares are done, so that it then collects the final states.
void Coordinator::hand_out() {
  std::vector<Idle> still_idle;
  if (!leader_began_ && !over_) return;
  for (const Idle& idle : std::exchange(idle_, {})) {
    const int worker = idle.worker;
    const bool anew = returned_.empty();
    const std::int64_t share = anew ? next_share_ : *returned_.begin();
    std::optional<std::int64_t> answer;
    if (over_) {
      answer = -1;
    } else if (anew && share >= end_) {
      if (worker != 0 || under_way_.empty()) answer = -1;
    } else {
      std::int64_t oldest = share;
      for (const auto& [other, its] : under_way_) oldest = std::min(oldest, its.share);
      const bool waits = options_.consistency == Consistency::kSsp &&
                         share / workers_ - oldest / workers_ > options_.staleness;
      if (!waits) answer = share;
    }
    if (!answer) {
      still_idle.push_back(idle);
      continue;
    }
    if (*answer >= 0) {
      under_way_[worker] = {share, std::chrono::steady_clock::now()};
      anew ? void(++next_share_) : void(returned_.erase(returned_.begin()));
    }
    wire_.to_control(
        worker,
        small_message({.kind = Kind::kShare},
                      Packer().add(*answer).list(std::span<const StepCost>(costs_)).take()));
  }
  idle_ = std::move(still_idle);
}

// ---- asp and ssp: traces

void Coordinator::tell_time(int worker) {
  const std::string identity = identity_of_clock();  // which takes time
  wire_.to_control(worker, small_message({.kind = Kind::kTime},
                                         Packer().add(trace_now()).text(identity).take()));
}

// Worker 0's link keeps what comes for it until it asks, by a trace of its own.
void Coordinator::take_trace(int worker, std::span<const std::byte> payload) {
  if (!traced_.insert(worker).second) {
    fail(ErrorCode::kProtocol, "worker {} sent its trace twice", worker);
  }
  if (worker == 0) {
    traces_since_ = std::chrono::steady_clock::now();
  } else {
    wire_.to_control(
        0, small_message({.kind = Kind::kTrace},
                         {reinterpret_cast<const char*>(payload.data()), payload.size()}));
    wire_.to_control(worker, small_message({.kind = Kind::kTraced}));
  }
  if (traces_since_ != kNoDeadline && !lacks_traces()) end_traces();
}

bool Coordinator::lacks_traces() const {
  for (int worker = 0; worker < workers_; ++worker) {
    if (!traced_.contains(worker) && !gone_.contains(worker)) return true;
  }
  return false;
}

void Coordinator::end_traces() {
  traces_since_ = kNoDeadline;
  wire_.to_control(0, small_message({.kind = Kind::kTraced},
                                    Packer().add(std::uint64_t{traced_.size() - 1}).take()));
}

Deadline Coordinator::traces_deadline(std::chrono::nanoseconds timeout) const {
  return traces_since_ == kNoDeadline ? kNoDeadline : traces_since_ + timeout;
}

}  // namespace lockstep::parallel
