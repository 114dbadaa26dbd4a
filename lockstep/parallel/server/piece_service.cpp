#include "lockstep/parallel/server/piece_service.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/optim/gradient_norm.h"

namespace lockstep::parallel {
PieceService::PieceService(const ServerOptions& options, ServedLayout layout, int server,
                           int workers, Ops& ops, ServerWire& wire)
    : options_(options),
      layout_(std::move(layout)),
      server_(server),
      workers_(workers),
      wire_(wire),
      store_(layout_, options.consistency, server, workers, ops),
      pieces_(layout_.pieces.size()),
      ready_(index(workers)),
      requests_(index(workers)),
      pulls_(index(workers)),
      withheld_(index(workers)) {
  for (const std::size_t piece : store_.pieces()) {
    pieces_[piece].pushed.resize(index(workers));
    pieces_[piece].seen.resize(index(workers));
  }
  for (std::size_t row = 0; row < kStateRows; ++row) {
    if (layout_.has(static_cast<StateRow>(row))) states_left_ += store_.pieces().size();
  }
}

PieceService::PieceState& PieceService::state_of(const Header& header) {
  if (!store_.is_mine(header.piece)) {
    fail(ErrorCode::kProtocol, "a '{}' is about piece {}, which is not of server {}",
         name(header.kind), header.piece, server_);
  }
  return pieces_[header.piece];
}

std::span<std::byte> PieceService::place(int worker, const Header& header) {
  state_of(header);
  std::span<std::byte> place;
  if (header.kind == Kind::kPush) {
    place = store_.receiving(header.piece, worker);
  } else {
    const auto row = static_cast<std::size_t>(header.number);
    if (worker != 0 || states_left_ == 0 || row >= kStateRows) {
      fail(ErrorCode::kProtocol, "worker {} sent state {} of piece {} unasked", worker, row,
           header.piece);
    }
    const Tensor state = store_.state(static_cast<StateRow>(row), header.piece);
    place = {state.data(), state.bytes()};
  }
  if (place.size() != header.bytes) {
    fail(ErrorCode::kProtocol, "piece {} came from worker {} with {} bytes; it has {}",
         header.piece, worker, header.bytes, place.size());
  }
  return place;
}

// ---- the start

void PieceService::take_state(const Header& header) {
  if (header.number == static_cast<double>(StateRow::kMaster)) {
    store_.round_parameters(header.piece);
  }
  if (--states_left_ > 0) return;
  for (int worker = 0; worker < workers_; ++worker) {
    if (ready_[index(worker)]) ready(worker, hash_of(layout_));
  }
}

void PieceService::ready(int worker, const std::string& hash) {
  if (hash != hash_of(layout_)) {
    throw Error(ErrorCode::kMismatch,
                fmt::format("worker {} has another model, precision, optimizer or cut into pieces "
                            "than worker 0; all workers need the same settings",
                            worker),
                {worker});
  }
  ready_[index(worker)] = true;
  if (states_left_ > 0) return;
  // Nothing is updated before all workers have said that they got this, so it stays as it is.
  for (const std::size_t piece : store_.pieces()) {
    wire_.to_worker(worker, message(Kind::kParameters, piece, store_.parameters(piece)));
  }
}

// ---- gradients

void PieceService::check_push(int worker, const Header& header, const PieceState& state) const {
  const std::uint64_t expected = state.pushed[index(worker)] + 1;
  if (header.round == expected && (!adds_up() || header.round == current_) &&
      (adds_up() || (requests_[index(worker)] && requests_[index(worker)]->first == expected))) {
    return;
  }
  fail(ErrorCode::kProtocol,
       "worker {} pushed piece {} for round {}, but server {} is at round {} and waits for round "
       "{} of that worker",
       worker, header.piece, header.round, server_, current_, expected);
}

void PieceService::push(int worker, const Header& header) {
  PieceState& state = state_of(header);
  check_push(worker, header, state);
  state.pushed[index(worker)] = header.round;
  wire_.to_worker(
      worker, small_message({.kind = Kind::kTaken, .piece = header.piece, .round = header.round}));
  if (adds_up()) {
    store_.landed(header.piece, worker);
    gradients_came(header.piece);
    return;
  }
  const RoundRequest& request = requests_[index(worker)]->second;
  const double staleness = static_cast<double>(state.version - state.seen[index(worker)]);
  ++state.version;
  store_.update(header.piece,
                {.step = *updates_before_ + static_cast<std::int64_t>(state.version),
                 .rate = request.rate,
                 .gradient_scale = request.gradient_scale},
                store_.landing(header.piece, worker));
  send_parameters(worker, header.piece, staleness);
}

void PieceService::zeros(int worker, const Header& header) {
  if (!adds_up()) fail(ErrorCode::kProtocol, "worker {} pushed nothing at all", worker);
  for (const std::size_t piece : store_.pieces()) {
    Header each = header;
    each.piece = static_cast<std::uint32_t>(piece);
    PieceState& state = pieces_[piece];
    check_push(worker, each, state);
    state.pushed[index(worker)] = header.round;
    store_.zero(piece, worker);
    gradients_came(piece);
  }
}

void PieceService::gradients_came(std::size_t piece) {
  if (since_ == kNoDeadline) since_ = std::chrono::steady_clock::now();
  if (++pieces_[piece].came == workers_) schedule(piece);
}

PieceService::Round& PieceService::round(std::uint64_t number) {
  Round& round = rounds_[number];
  round.requested.resize(index(workers_));
  return round;
}

void PieceService::request(int worker, const Header& header, std::span<const std::byte> payload) {
  const RoundRequest request = RoundRequest::decode(payload);
  if (!adds_up()) {
    if (!updates_before_) updates_before_ = request.updates * workers_;
    requests_[index(worker)] = {header.round, request};
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
    throw Error(ErrorCode::kMismatch,
                fmt::format("workers disagree about update {}: worker {} asks for rate {} and loss "
                            "scale {}, another for {} and {}; all workers need the same settings",
                            header.round, worker, request.rate, request.loss_scale,
                            asked.request.rate, asked.request.loss_scale),
                {worker});
  }
  asked.requested[index(worker)] = true;
  if (++asked.requests == workers_ && header.round == current_) go_on();
}

// ---- bsp: the work of a round

Priority PieceService::priority_of(std::size_t piece) const {
  return options_.schedule == PieceSchedule::kPriority
             ? static_cast<Priority>(layout_.pieces[piece].block + 1)
             : 1;
}

// Queues the next thing to do with a piece, if there is all that it takes.
void PieceService::schedule(std::size_t piece) {
  const PieceState& state = pieces_[piece];
  const bool may_update = round(current_).requests == workers_ &&
                          (!layout_.needs_norm() || gradient_scale_.has_value());
  const bool may_add_up = layout_.needs_norm() && !state.added_up;
  if (state.came < workers_ || (!may_update && !may_add_up)) return;
  const bool by_block = options_.schedule == PieceSchedule::kPriority;
  work_.insert({by_block ? layout_.pieces[piece].block : worked_++, piece});
}

void PieceService::work() {
  const std::size_t piece = work_.begin()->second;
  work_.erase(work_.begin());
  PieceState& state = pieces_[piece];
  if (!state.added_up) {
    store_.add_up(piece);
    state.added_up = true;
    if (layout_.needs_norm()) {
      squares_[piece] = store_.squares(piece);
      ++added_up_;
      report_squares();
      return;
    }
  }
  update_round(piece);
}

void PieceService::report_squares() {
  const Round& asked = round(current_);
  if (!layout_.needs_norm() || gradient_scale_ || asked.requests < workers_ || reported_ ||
      added_up_ < store_.pieces().size()) {
    return;
  }
  reported_ = true;
  std::vector<double> sums;
  for (const auto& [piece, squares] : squares_)
    sums.insert(sums.end(), squares.begin(), squares.end());
  squares_.clear();
  wire_.to_server(
      0, small_message({.kind = Kind::kSums, .round = current_, .number = asked.request.loss_scale},
                       Packer().list(std::span<const double>(sums)).take()));
}

void PieceService::verdict(const Header& header) {
  if (!adds_up() || header.round != current_ || gradient_scale_ ||
      added_up_ < store_.pieces().size()) {
    fail(ErrorCode::kProtocol, "the norm of round {} came in round {}", header.round, current_);
  }
  const double loss_scale = round(current_).request.loss_scale;
  gradient_scale_ = optim::clip_factor(header.number, layout_.optimizer.clip) / loss_scale;
  if (std::isfinite(header.number)) return go_on();
  for (int worker = 0; worker < workers_; ++worker) {
    wire_.to_worker(worker, small_message({.kind = Kind::kKept, .round = current_}));
  }
  for (const std::size_t piece : store_.pieces()) finish_piece(piece, false);
  if (store_.pieces().empty()) finish_round();
}

// Does what a round whose update has been asked for allows.
void PieceService::go_on() {
  if (round(current_).requests < workers_) return;
  if (store_.pieces().empty() && (!layout_.needs_norm() || gradient_scale_)) return finish_round();
  for (const std::size_t piece : store_.pieces()) schedule(piece);
  report_squares();
}

void PieceService::update_round(std::size_t piece) {
  const RoundRequest& request = round(current_).request;
  store_.update(piece,
                {.step = request.updates + 1,
                 .rate = request.rate,
                 .gradient_scale = gradient_scale_.value_or(1 / request.loss_scale)},
                store_.sum(piece));
  finish_piece(piece, true);
}

void PieceService::finish_piece(std::size_t piece, bool changed) {
  PieceState& state = pieces_[piece];
  state.version = current_;
  state.came = 0;
  state.added_up = false;
  for (int worker = 0; changed && worker < workers_; ++worker) send_parameters(worker, piece, 0);
  if (const auto waiting = collects_.find(piece); waiting != collects_.end()) {
    collects_.erase(waiting);
    send_states(piece);
  }
  if (++updated_ == store_.pieces().size()) finish_round();
}

void PieceService::finish_round() {
  rounds_.erase(current_++);
  updated_ = 0;
  added_up_ = 0;
  reported_ = false;
  gradient_scale_.reset();
  since_ = kNoDeadline;
  go_on();  // a server without pieces can be behind
}

Deadline PieceService::deadline(std::chrono::nanoseconds patience) const {
  return since_ == kNoDeadline ? kNoDeadline : since_ + patience;
}

std::vector<int> PieceService::missing() const {
  std::vector<int> workers;
  for (int worker = 0; worker < workers_; ++worker) {
    const auto lacks = [&](std::size_t piece) {
      return pieces_[piece].version < current_ && pieces_[piece].pushed[index(worker)] < current_;
    };
    if (std::ranges::any_of(store_.pieces(), lacks)) workers.push_back(worker);
  }
  return workers;
}

}  // namespace lockstep::parallel
