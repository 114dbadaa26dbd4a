#include "lockstep/parallel/server/worker_link.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/clock.h"

namespace lockstep::parallel {
namespace {

constexpr double kBytesPerMegabyte = 1 << 20;
constexpr std::size_t kLargestAnswer = std::size_t{16} << 20;
// Servers notice first who is late, and can say it; this is for servers that are late themselves.
constexpr auto kServersNoticeFirst = std::chrono::seconds(1);
constexpr std::size_t kCollectsUnderWay = 2;  // pieces at a time, of each server

}  // namespace

WorkerLink::WorkerLink(const ServerOptions& options, const JobMap& map, WorkerSockets sockets,
                       std::chrono::nanoseconds timeout, const std::optional<LinkEmulation>& link)
    : options_(options),
      map_(map),
      timeout_(timeout + kServersNoticeFirst),
      hub_(*this, link),
      queue_(map.servers, static_cast<std::size_t>(options.credit_mb * kBytesPerMegabyte)) {
  for (UniqueFd& socket : sockets.data) hub_.add(std::move(socket));
  control_ = hub_.add(std::move(sockets.control));
  small_.resize(static_cast<std::size_t>(control_) + 1);
  to_collect_.resize(static_cast<std::size_t>(map.servers));
  thread_ = std::thread([this] { run(); });
}

WorkerLink::~WorkerLink() {
  {
    const Lock lock(mutex_);
    closing_ = true;
  }
  hub_.wake();
  thread_.join();
}

void WorkerLink::attach(const ServedLayout& layout, const nn::States& states, std::size_t blocks) {
  const Lock lock(mutex_);
  layout_ = layout;
  states_ = states;
  out_.resize(layout.pieces.size());
  out_of_block_.resize(blocks);
}

std::size_t WorkerLink::bytes_of(std::size_t piece) const {
  return layout_.pieces[piece].range.elements * size_of(layout_.gradient);
}

Tensor WorkerLink::row(StateRow row) const {
  switch (row) {
    case StateRow::kMaster:
      return states_.master;
    case StateRow::kMoment:
      return states_.moment;
    case StateRow::kVariance:
      return states_.variance;
    case StateRow::kVelocity:
      return states_.velocity;
  }
  return {};
}

Tensor WorkerLink::part(const Tensor& row, const Piece& piece) {
  return row.slice(static_cast<std::int64_t>(piece.range.first),
                   static_cast<std::int64_t>(piece.range.elements));
}

// ---- for the worker's thread

void WorkerLink::post(int server, OutMessage message) {
  {
    const Lock lock(mutex_);
    if (fault_) throw *fault_;
    posted_.emplace_back(server, std::move(message));
  }
  hub_.wake();
}

void WorkerLink::ask(OutMessage question) { post(control_, std::move(question)); }

template <class Condition>
void WorkerLink::wait(Lock& lock, std::string_view for_what, Condition condition) {
  const auto ended = [&] { return condition() || fault_.has_value(); };
  const bool in_time = changed_.wait_until(lock, deadline_in(timeout_), ended);
  if (fault_) throw *fault_;
  if (in_time) return;
  std::vector<int> ranks;
  for (std::size_t piece = 0; piece < out_.size(); ++piece) {
    const int rank = map_.rank_of_server(layout_.pieces[piece].server);
    if (out_[piece] && std::ranges::count(ranks, rank) == 0) ranks.push_back(rank);
  }
  if (ranks.empty()) ranks.push_back(map_.rank_of_server(0));
  std::string named;
  for (const int rank : ranks) named += fmt::format(" {}", rank);
  throw Error(ErrorCode::kTimeout,
              fmt::format("no {} came from the parameter server(s) at rank{} within {:g} s "
                          "(comm.timeout)",
                          for_what, named, std::chrono::duration<double>(timeout_).count()),
              ranks);
}

std::string WorkerLink::answer(Kind kind) {
  Lock lock(mutex_);
  wait(lock, name(kind), [&] { return answers_.contains(kind); });
  const auto found = answers_.find(kind);
  std::string payload = std::move(found->second);
  answers_.erase(found);
  return payload;
}

void WorkerLink::mark_out(std::size_t piece) {
  if (out_[piece]) fail(ErrorCode::kInvalidArgument, "piece {} is out already", piece);
  if (out_count_++ == 0) out_since_ = SteadyClock::now();
  out_[piece] = true;
  ++out_of_block_[layout_.pieces[piece].block];
}

void WorkerLink::expect_all() {
  const Lock lock(mutex_);
  for (std::size_t piece = 0; piece < out_.size(); ++piece) mark_out(piece);
}

void WorkerLink::push(std::span<const std::size_t> pieces, std::uint64_t round) {
  {
    const Lock lock(mutex_);
    if (fault_) throw *fault_;
    if (round_ != round) untaken_ = out_.size();
    round_ = round;
    for (const std::size_t piece : pieces) {
      mark_out(piece);
      const Piece& each = layout_.pieces[piece];
      const bool by_block = options_.schedule == PieceSchedule::kPriority;
      queue_.add(piece, by_block ? each.block : pushed_, each.server, bytes_of(piece));
      ++pushed_;
    }
  }
  hub_.wake();
}

void WorkerLink::push_zeros(std::uint64_t round) {
  {
    const Lock lock(mutex_);
    if (fault_) throw *fault_;
    round_ = round;
    untaken_ = 0;
    for (std::size_t piece = 0; piece < out_.size(); ++piece) mark_out(piece);
    for (int server = 0; server < map_.servers; ++server) {
      posted_.emplace_back(server, small_message({.kind = Kind::kZeros, .round = round}));
      posted_.emplace_back(server, small_message({.kind = Kind::kPull, .round = round}));
    }
  }
  hub_.wake();
}

bool WorkerLink::is_back(std::optional<std::size_t> block) {
  const Lock lock(mutex_);
  if (fault_) throw *fault_;
  return out_of(block) == 0;
}

void WorkerLink::await(std::optional<std::size_t> block) {
  Lock lock(mutex_);
  wait(lock, "parameters", [&] { return out_of(block) == 0; });
}

void WorkerLink::collect(std::uint64_t round) {
  Lock lock(mutex_);
  if (fault_) throw *fault_;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < kStateRows; ++i)
    rows += layout_.has(static_cast<StateRow>(i)) ? 1 : 0;
  round_ = round;
  states_to_come_ = rows * layout_.pieces.size();
  for (std::size_t piece = layout_.pieces.size(); piece-- > 0;) {
    to_collect_[static_cast<std::size_t>(layout_.pieces[piece].server)].push_back(piece);
  }
  for (int server = 0; server < map_.servers; ++server) {
    for (std::size_t i = 0; i < kCollectsUnderWay; ++i) ask_for_states(server);
  }
  hub_.wake();
  // Each piece is waited for anew, since a large model takes its time.
  while (states_to_come_ > 0) {
    const std::size_t before = states_to_come_;
    wait(lock, "optimizer states", [&] { return states_to_come_ < before; });
  }
}

void WorkerLink::ask_for_states(int server) {
  std::vector<std::size_t>& pieces = to_collect_[static_cast<std::size_t>(server)];
  if (pieces.empty()) return;
  posted_.emplace_back(server, small_message({.kind = Kind::kCollect,
                                              .piece = static_cast<std::uint32_t>(pieces.back()),
                                              .round = round_}));
  pieces.pop_back();
}

void WorkerLink::blame(const Error& error) {
  {
    const Lock lock(mutex_);
    if (!fault_) fault_ = error;
  }
  hub_.wake();
}

WorkerLink::Cost WorkerLink::take_cost() {
  const Lock lock(mutex_);
  if (out_count_ > 0) {
    out_seconds_ += seconds_since(out_since_);
    out_since_ = SteadyClock::now();
  }
  const Cost cost{.seconds = std::exchange(out_seconds_, 0),
                  .bytes = bytes_sent_ - bytes_told_,
                  .staleness = came_back_ > 0 ? staleness_ / static_cast<double>(came_back_) : 0};
  bytes_told_ = bytes_sent_;
  staleness_ = 0;
  came_back_ = 0;
  return cost;
}

// ---- for the link's thread: what comes

const Piece& WorkerLink::checked(int connection, const Header& header) const {
  if (header.piece >= layout_.pieces.size() || layout_.pieces[header.piece].server != connection) {
    fail(ErrorCode::kProtocol, "{} sent a '{}' of piece {}, which it does not have",
         map_.server_text(connection), name(header.kind), header.piece);
  }
  return layout_.pieces[header.piece];
}

std::span<std::byte> WorkerLink::place(int connection, const Header& header) {
  const Lock lock(mutex_);
  Tensor target;
  if (header.kind == Kind::kParameters) {
    const Piece& piece = checked(connection, header);
    if (!out_[header.piece]) {
      fail(ErrorCode::kProtocol, "{} sent piece {} twice", map_.server_text(connection),
           header.piece);
    }
    target = part(states_.parameters, piece);
  } else if (header.kind == Kind::kState) {
    const Piece& piece = checked(connection, header);
    const auto state = static_cast<std::size_t>(header.number);
    if (states_to_come_ == 0 || state >= kStateRows || !layout_.has(static_cast<StateRow>(state))) {
      fail(ErrorCode::kProtocol, "{} sent state {} unasked", map_.server_text(connection), state);
    }
    target = part(row(static_cast<StateRow>(state)), piece);
  } else {
    std::vector<std::byte>& small = small_[static_cast<std::size_t>(connection)];
    if (header.bytes > kLargestAnswer) {
      fail(ErrorCode::kProtocol, "a server sent a '{}' of {} bytes", name(header.kind),
           header.bytes);
    }
    small.resize(header.bytes);
    return small;
  }
  if (target.bytes() != header.bytes) {
    fail(ErrorCode::kProtocol, "{} sent {} bytes of piece {}, which has {}",
         map_.server_text(connection), header.bytes, header.piece, target.bytes());
  }
  return {target.data(), target.bytes()};
}

void WorkerLink::take(int connection, const Header& header, std::span<std::byte> payload) {
  const Lock lock(mutex_);
  switch (header.kind) {
    case Kind::kParameters:
      staleness_ += header.number;
      ++came_back_;
      mark_back(header.piece);
      break;
    case Kind::kKept:
      for (std::size_t piece = 0; piece < out_.size(); ++piece) {
        if (out_[piece] && layout_.pieces[piece].server == connection) mark_back(piece);
      }
      break;
    case Kind::kTaken:
      queue_.taken(checked(connection, header).server, bytes_of(header.piece));
      if (untaken_ > 0 && --untaken_ == 0 && options_.schedule == PieceSchedule::kFifo) {
        for (int server = 0; server < map_.servers; ++server) {
          posted_.emplace_back(server, small_message({.kind = Kind::kPull, .round = round_}));
        }
      }
      break;
    case Kind::kState:
      --states_to_come_;
      // The last row of a piece.
      if (header.number == (layout_.has(StateRow::kVelocity)   ? 3.
                            : layout_.has(StateRow::kVariance) ? 2.
                                                               : 0.)) {
        ask_for_states(connection);
      }
      break;
    case Kind::kFailed:
      if (const auto fault = decode_fault(payload)) throw *fault;
      break;
    case Kind::kNorm:
      answers_.emplace(header.kind, Packer().add(header.number).take());
      break;
    case Kind::kChecked:
    case Kind::kTotals:
    case Kind::kSummary:
    case Kind::kShare:
      answers_.emplace(header.kind,
                       std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
      break;
    default:
      fail(ErrorCode::kProtocol, "a server sent a '{}' to a worker", name(header.kind));
  }
  changed_.notify_all();
}

void WorkerLink::mark_back(std::size_t piece) {
  out_[piece] = false;
  --out_of_block_[layout_.pieces[piece].block];
  if (--out_count_ == 0) out_seconds_ += seconds_since(out_since_);
}

void WorkerLink::lost(int connection) {
  const int server = connection == control_ ? 0 : connection;
  throw Error(ErrorCode::kPeerLost,
              fmt::format("parameter {} is gone: its process died, or its machine cannot be "
                          "reached; the run can go on from its last checkpoint",
                          map_.server_text(server)),
              {map_.rank_of_server(server)});
}

}  // namespace lockstep::parallel
