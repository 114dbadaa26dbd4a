// What comes to a worker from servers; in the link's thread.
#include "lockstep/parallel/server/worker/worker_link.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kLargestAnswer = std::size_t{16} << 20;

}  // namespace

const Piece& WorkerLink::checked(int connection, const Header& header) const {
  if (header.piece >= layout_.pieces.size() || layout_.pieces[header.piece].server != connection) {
    fail(ErrorCode::kProtocol, "{} sent a '{}' of piece {}, which it does not have",
         map_.server_text(connection), name(header.kind), header.piece);
  }
  return layout_.pieces[header.piece];
}

std::span<std::byte> WorkerLink::place(int connection, const Header& header) {
  const Lock lock(mutex_);
  std::span<std::byte> target;
  if (header.kind == Kind::kParameters || header.kind == Kind::kEarly) {
    checked(connection, header);
    if (!out_.is_out(header.piece)) {
      fail(ErrorCode::kProtocol, "{} sent piece {} twice", map_.server_text(connection),
           header.piece);
    }
    target = codec_->receiving(header.piece, parameters(header.piece));
  } else if (header.kind == Kind::kState) {
    const Piece& piece = checked(connection, header);
    const std::size_t state = state_row(header.number);
    if (states_to_come_ == 0 || state >= kStateRows || !layout_.has(static_cast<StateRow>(state))) {
      fail(ErrorCode::kProtocol, "{} sent state {} unasked", map_.server_text(connection), state);
    }
    const Tensor part_of_row = part(row(static_cast<StateRow>(state)), piece);
    target = {part_of_row.data(), part_of_row.bytes()};
  } else {
    std::vector<std::byte>& small = small_[static_cast<std::size_t>(connection)];
    std::size_t most = header.kind == Kind::kTrace ? kMostSmall : kLargestAnswer;
    if (header.kind == Kind::kRows) {
      const Tensor piece = part(states_.parameters, checked(connection, header));
      most = 2 * sizeof(std::uint64_t) + most_encoded(piece.elements()) + piece.bytes();
    }
    if (header.bytes > most) {
      fail(ErrorCode::kProtocol, "a server sent a '{}' of {} bytes", name(header.kind),
           header.bytes);
    }
    small.resize(header.bytes);
    return small;
  }
  if (target.size() != header.bytes) {
    fail(ErrorCode::kProtocol, "{} sent {} bytes of piece {}, which has {}",
         map_.server_text(connection), header.bytes, header.piece, target.size());
  }
  return target;
}

void WorkerLink::landed(int connection, const Header& header) {
  try {
    codec_->landed(header.piece, parameters(header.piece));
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("what {} sent of piece {} cannot be read: {}",
                            map_.server_text(connection), header.piece, error.what()),
                {map_.rank_of_server(connection)});
  }
}

// What a piece that came early was without.
void WorkerLink::take_rows(int connection, const Header& header,
                           std::span<const std::byte> payload) {
  const Tensor piece = part(states_.parameters, checked(connection, header));
  const std::size_t element = size_of(piece.dtype());
  Unpacker unpacker(payload);
  const Runs runs = decode_runs(unpacker.list<std::uint64_t>(), piece.elements());
  const std::string_view values = unpacker.text();
  unpacker.finish();
  if (!early_[header.piece] || values.size() != elements_of(runs) * element) {
    fail(ErrorCode::kProtocol, "{} sent {} bytes of rows of piece {} that were not expected",
         map_.server_text(connection), values.size(), header.piece);
  }
  put_runs(runs, element, std::as_bytes(std::span(values)), {piece.data(), piece.bytes()});
}

void WorkerLink::take(int connection, const Header& header, std::span<std::byte> payload) {
  // Before the lock is taken: the piece is the link's until it is back.
  if (header.kind == Kind::kParameters || header.kind == Kind::kEarly) landed(connection, header);
  const Lock lock(mutex_);
  bytes_sent_ = loop_.bytes_sent();
  bytes_received_ += sizeof(Header) + payload.size();
  switch (header.kind) {
    case Kind::kEarly:
      early_[header.piece] = true;  // the piece is back when its rows are
      break;
    case Kind::kRows:
      take_rows(connection, header, payload);
      early_[header.piece] = false;
      is_back(header.piece);
      break;
    case Kind::kParameters:
      staleness_ += header.number;
      ++came_back_;
      is_back(header.piece);
      break;
    case Kind::kKept:
      for (std::size_t piece = 0; piece < out_.pieces(); ++piece) {
        if (out_.is_out(piece) && layout_.pieces[piece].server == connection) is_back(piece);
      }
      break;
    case Kind::kTaken:
      queue_.taken(checked(connection, header).server, pushed_bytes(header.piece));
      on_way_[header.piece] = false;
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
    case Kind::kTime:
    case Kind::kTrace:
    case Kind::kTraced:
      answers_.emplace(header.kind,
                       std::string(reinterpret_cast<const char*>(payload.data()), payload.size()));
      break;
    default:
      fail(ErrorCode::kProtocol, "a server sent a '{}' to a worker", name(header.kind));
  }
  changed_.notify_all();
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
