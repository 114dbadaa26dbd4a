// What comes to a worker from servers; in the link's thread.
#include "lockstep/parallel/server/worker/worker_link.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kLargestAnswer = std::size_t{16} << 20;

}  // namespace

const Slice& WorkerLink::checked(int connection, const Header& header) const {
  if (header.slice >= layout_.slices.size() || layout_.slices[header.slice].server != connection) {
    fail(ErrorCode::kProtocol, "{} sent a message '{}' of slice {}, which it does not hold",
         map_.server_text(connection), name(header.kind), header.slice);
  }
  return layout_.slices[header.slice];
}

std::span<std::byte> WorkerLink::place(int connection, const Header& header) {
  const Lock lock(mutex_);
  std::span<std::byte> target;
  if (header.kind == Kind::kParameters || header.kind == Kind::kEarly) {
    checked(connection, header);
    if (!out_.is_out(header.slice)) {
      fail(ErrorCode::kProtocol, "{} sent slice {} twice", map_.server_text(connection),
           header.slice);
    }
    target = codec_->receiving(header.slice, parameters(header.slice));
  } else if (header.kind == Kind::kState) {
    const Slice& slice = checked(connection, header);
    const std::size_t state = state_kind(header.number);
    if (states_to_come_ == 0 || state >= kStateKinds ||
        !layout_.has(static_cast<StateKind>(state))) {
      fail(ErrorCode::kProtocol, "{} sent state {} without a request", map_.server_text(connection),
           state);
    }
    const Tensor part_of_state = part(state_buffer(static_cast<StateKind>(state)), slice);
    target = {part_of_state.data(), part_of_state.bytes()};
  } else {
    std::vector<std::byte>& small = small_[static_cast<std::size_t>(connection)];
    std::size_t most = header.kind == Kind::kTrace ? kMostSmall : kLargestAnswer;
    if (header.kind == Kind::kRows) {
      const Tensor slice = part(states_.parameters, checked(connection, header));
      most = 2 * sizeof(std::uint64_t) + most_encoded(slice.elements()) + slice.bytes();
    }
    if (header.bytes > most) {
      fail(ErrorCode::kProtocol, "a server sent a message '{}' of {} bytes, which is not its size",
           name(header.kind), header.bytes);
    }
    small.resize(header.bytes);
    return small;
  }
  if (target.size() != header.bytes) {
    fail(ErrorCode::kProtocol, "{} sent {} bytes of slice {}, which has {}",
         map_.server_text(connection), header.bytes, header.slice, target.size());
  }
  return target;
}

void WorkerLink::landed(int connection, const Header& header) {
  try {
    codec_->landed(header.slice, parameters(header.slice));
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("cannot decode what {} sent of slice {}: {}",
                            map_.server_text(connection), header.slice, error.what()),
                {map_.rank_of_server(connection)});
  }
}

// The rows that an early slice did not have.
void WorkerLink::take_rows(int connection, const Header& header,
                           std::span<const std::byte> payload) {
  const Tensor slice = part(states_.parameters, checked(connection, header));
  const std::size_t element = size_of(slice.dtype());
  Unpacker unpacker(payload);
  const Runs runs = decode_runs(unpacker.list<std::uint64_t>(), slice.elements());
  const std::string_view values = unpacker.text();
  unpacker.finish();
  if (!early_[header.slice] || values.size() != elements_of(runs) * element) {
    fail(ErrorCode::kProtocol, "{} sent {} bytes of rows of slice {} that were not expected",
         map_.server_text(connection), values.size(), header.slice);
  }
  put_runs(runs, element, std::as_bytes(std::span(values)), {slice.data(), slice.bytes()});
}

void WorkerLink::take(int connection, const Header& header, std::span<std::byte> payload) {
  // Before the lock is taken: the slice is the link's until it is back.
  if (header.kind == Kind::kParameters || header.kind == Kind::kEarly) landed(connection, header);
  const Lock lock(mutex_);
  bytes_sent_ = loop_.bytes_sent();
  bytes_received_ += sizeof(Header) + payload.size();
  switch (header.kind) {
    case Kind::kEarly:
      early_[header.slice] = true;  // the slice is back when its rows are
      break;
    case Kind::kRows:
      take_rows(connection, header, payload);
      early_[header.slice] = false;
      is_back(header.slice);
      break;
    case Kind::kParameters:
      staleness_ += header.number;
      ++came_back_;
      is_back(header.slice);
      break;
    case Kind::kKept:
      for (std::size_t slice = 0; slice < out_.slices(); ++slice) {
        if (out_.is_out(slice) && layout_.slices[slice].server == connection) is_back(slice);
      }
      break;
    case Kind::kTaken:
      queue_.taken(checked(connection, header).server, pushed_bytes(header.slice));
      on_way_[header.slice] = false;
      if (untaken_ > 0 && --untaken_ == 0 && options_.schedule == SliceSchedule::kFifo) {
        for (int server = 0; server < map_.servers; ++server) {
          posted_.emplace_back(server, small_message({.kind = Kind::kPull, .round = round_}));
        }
      }
      break;
    case Kind::kState:
      --states_to_come_;
      // The last state of a slice.
      if (header.number == (layout_.has(StateKind::kVelocity)       ? 3.
                            : layout_.has(StateKind::kSecondMoment) ? 2.
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
      fail(ErrorCode::kProtocol, "a server sent a worker a message '{}', which servers do not send",
           name(header.kind));
  }
  changed_.notify_all();
}

void WorkerLink::lost(int connection) {
  const int server = connection == control_ ? 0 : connection;
  throw Error(
      ErrorCode::kPeerLost,
      fmt::format("lost the connection to parameter {}: its process died, or its node cannot be "
                  "reached. Start the run again to continue from its last checkpoint",
                  map_.server_text(server)),
      {map_.rank_of_server(server)});
}

}  // namespace lockstep::parallel
