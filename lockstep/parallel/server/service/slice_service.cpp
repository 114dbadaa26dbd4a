#include "lockstep/parallel/server/service/slice_service.h"

namespace lockstep::parallel {

SliceService::SliceService(const ServerOptions& options, ServedLayout layout, int server,
                           int workers, Ops& ops, ServerWire& wire, SliceWindow* window)
    : options_(options),
      layout_(std::move(layout)),
      server_(server),
      workers_(workers),
      wire_(wire),
      own_store_(std::make_shared<SliceStore>(layout_, options.consistency, server, workers, ops)),
      store_(*own_store_),
      window_(window),
      slices_(layout_.slices.size()),
      ready_(index(workers)),
      rows_(index(workers)),
      requests_(index(workers)),
      pulls_(index(workers)),
      withheld_(index(workers)) {
  for (const std::size_t slice : store_.slices()) {
    slices_[slice].pushed.resize(index(workers));
    slices_[slice].seen.resize(index(workers));
  }
  for (std::size_t kind = 0; kind < kStateKinds; ++kind) {
    if (layout_.has(static_cast<StateKind>(kind))) states_left_ += store_.slices().size();
  }
  if (window_ != nullptr) window_->open(own_store_);
  if (states_left_ == 0) tell_window(0);
}

void SliceService::tell_window(std::uint64_t rounds) {
  if (window_ != nullptr) window_->finish(rounds);
}

SliceService::SliceState& SliceService::state_of(const Header& header) {
  if (!store_.is_mine(header.slice)) {
    fail(ErrorCode::kProtocol, "a message '{}' names slice {}, which server {} does not hold",
         name(header.kind), header.slice, server_);
  }
  return slices_[header.slice];
}

std::span<std::byte> SliceService::place(int worker, const Header& header) {
  const SliceState& state = state_of(header);
  std::span<std::byte> place;
  if (header.kind == Kind::kPush) {
    place = store_.receiving(header.slice, worker);
  } else if (header.kind == Kind::kRows) {
    const auto owed = state.owed.find(worker);
    const std::size_t elements = owed == state.owed.end() ? 0 : elements_of(owed->second);
    rows_[index(worker)].resize(elements * size_of(layout_.gradient));
    place = rows_[index(worker)];
  } else {
    const std::size_t kind = state_kind(header.number);
    if (worker != 0 || states_left_ == 0 || kind >= kStateKinds) {
      fail(ErrorCode::kProtocol, "worker {} sent state {} of slice {} without a request", worker,
           kind, header.slice);
    }
    const Tensor sent = store_.state(static_cast<StateKind>(kind), header.slice);
    place = {sent.data(), sent.bytes()};
  }
  if (place.size() != header.bytes) {
    fail(ErrorCode::kProtocol, "received slice {} from worker {} with {} bytes; expected {}",
         header.slice, worker, header.bytes, place.size());
  }
  return place;
}

// ---- the start

void SliceService::take_state(const Header& header) {
  if (header.number == static_cast<double>(StateKind::kMaster)) {
    store_.round_parameters(header.slice);
  }
  if (--states_left_ > 0) return;
  tell_window(0);
  for (int worker = 0; worker < workers_; ++worker) {
    if (ready_[index(worker)]) ready(worker, hash_of(layout_));
  }
}

void SliceService::ready(int worker, const std::string& hash) {
  if (hash != hash_of(layout_)) {
    throw Error(
        ErrorCode::kMismatch,
        fmt::format("worker {} has a different model, precision, optimizer, compression or "
                    "division into slices from worker 0; all workers need the same settings",
                    worker),
        {worker});
  }
  ready_[index(worker)] = true;
  if (states_left_ > 0) return;
  // Nothing is updated before all workers have said that they got this, so it stays as it is.
  for (const std::size_t slice : store_.slices()) {
    wire_.to_worker(worker, message(Kind::kParameters, slice, store_.pulled(slice)));
  }
}

// ---- gradients

void SliceService::check_push(int worker, const Header& header, const SliceState& state) const {
  const std::uint64_t expected = state.pushed[index(worker)] + 1;
  if (header.round == expected && (!adds_up() || header.round == current_) &&
      (adds_up() || requests_[index(worker)].contains(expected))) {
    return;
  }
  fail(ErrorCode::kProtocol,
       "worker {} pushed slice {} for round {}, but server {} is at round {} and waits for round "
       "{} of that worker",
       worker, header.slice, header.round, server_, current_, expected);
}

// The received gradients as a tensor.
Tensor SliceService::landed(int worker, const Header& header) {
  constexpr double kMostSteps = 0x1p53;
  if (!(header.number >= 0 && header.number <= kMostSteps)) {
    fail(ErrorCode::kProtocol, "worker {} pushed slice {} for step {}", worker, header.slice,
         header.number);
  }
  try {
    return store_.landed(header.slice, worker, static_cast<std::int64_t>(header.number));
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("cannot decode what worker {} (rank {}) pushed of slice {}: {}", worker,
                            worker, header.slice, error.what()),
                {worker});
  }
}

void SliceService::push(int worker, const Header& header) {
  SliceState& state = state_of(header);
  check_push(worker, header, state);
  const Tensor gradients = landed(worker, header);
  state.pushed[index(worker)] = header.round;
  wire_.to_worker(
      worker, small_message({.kind = Kind::kTaken, .slice = header.slice, .round = header.round}));
  if (adds_up()) {
    gradients_came(header.slice);
    return;
  }
  const RoundRequest& request = requests_[index(worker)].at(header.round);
  const double staleness = static_cast<double>(state.version - state.seen[index(worker)]);
  ++state.version;
  store_.update(header.slice,
                {.step = *updates_before_ + static_cast<std::int64_t>(state.version),
                 .rate = request.rate,
                 .gradient_scale = request.gradient_scale,
                 .parts = workers_},
                gradients);
  send_parameters(worker, header.slice, staleness);
}

void SliceService::owe(int worker, const Header& header, std::span<const std::byte> payload) {
  SliceState& state = state_of(header);
  check_push(worker, header, state);
  Unpacker unpacker(payload);
  Runs runs =
      decode_runs(unpacker.list<std::uint64_t>(), layout_.slices[header.slice].range.elements);
  unpacker.finish();
  if (!adds_up() || layout_.compression.compression != Compression::kNone || runs.empty() ||
      !state.owed.emplace(worker, std::move(runs)).second) {
    fail(ErrorCode::kProtocol, "worker {} announced rows of slice {} out of order", worker,
         header.slice);
  }
}

void SliceService::rows(int worker, const Header& header, std::span<const std::byte> payload) {
  SliceState& state = state_of(header);
  const auto owed = state.owed.find(worker);
  if (owed == state.owed.end() || header.round != current_ ||
      state.pushed[index(worker)] != current_) {
    fail(ErrorCode::kProtocol,
         "worker {} sent rows of slice {} for round {} without a request, in round {}", worker,
         header.slice, header.round, current_);
  }
  store_.replace(header.slice, worker, owed->second, payload);
  state.owed.erase(owed);
  schedule(header.slice);
}

void SliceService::zeros(int worker, const Header& header) {
  if (!adds_up()) fail(ErrorCode::kProtocol, "worker {} pushed nothing at all", worker);
  for (const std::size_t slice : store_.slices()) {
    Header each = header;
    each.slice = static_cast<std::uint32_t>(slice);
    SliceState& state = slices_[slice];
    check_push(worker, each, state);
    state.pushed[index(worker)] = header.round;
    store_.zero(slice, worker);
    gradients_came(slice);
  }
}

void SliceService::gradients_came(std::size_t slice) {
  if (since_ == kNoDeadline) since_ = std::chrono::steady_clock::now();
  if (++slices_[slice].came == workers_) schedule(slice);
}

}  // namespace lockstep::parallel
