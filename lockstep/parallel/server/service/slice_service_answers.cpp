// What a server sends to workers.
#include "lockstep/parallel/server/service/slice_service.h"

namespace lockstep::parallel {

// With bsp nothing changes before all workers have what was sent, but for rows that follow kEarly
// and are sent again, so it is sent from where it is; otherwise the next push would change it on
// its way.
OutMessage SliceService::message(Kind kind, std::size_t slice, std::span<const std::byte> payload) {
  OutMessage message{.header = {.kind = kind,
                                .slice = static_cast<std::uint32_t>(slice),
                                .round = slices_[slice].version,
                                .bytes = payload.size()},
                     .payload = payload,
                     .owner = nullptr,
                     .priority = priority_of(slice)};
  if (adds_up()) return message;
  auto kept =
      std::make_shared<std::vector<std::byte>>(message.payload.begin(), message.payload.end());
  message.payload = *kept;
  message.owner = std::move(kept);
  return message;
}

void SliceService::send_parameters(int worker, std::size_t slice, double staleness) {
  SliceState& state = slices_[slice];
  if (options_.schedule == SliceSchedule::kFifo &&
      pulls_[index(worker)] < state.pushed[index(worker)]) {
    withheld_[index(worker)].push_back({slice, staleness});
    return;
  }
  state.seen[index(worker)] = state.version;
  OutMessage parameters = message(Kind::kParameters, slice, store_.pulled(slice));
  parameters.header.number = staleness;
  wire_.to_worker(worker, std::move(parameters));
}

// Those that kEarly was without. What it has in their place is overwritten, whenever it left.
void SliceService::send_rows(std::size_t slice) {
  const Runs& runs = *slices_[slice].apart;
  std::string values(elements_of(runs) * size_of(layout_.parameter), '\0');
  store_.copy_parameters(slice, runs, std::as_writable_bytes(std::span(values)));
  const OutMessage rows = small_message(
      {.kind = Kind::kRows,
       .slice = static_cast<std::uint32_t>(slice),
       .round = slices_[slice].version},
      Packer().list(std::span<const std::uint64_t>(encode_runs(runs))).text(values).take());
  for (int worker = 0; worker < workers_; ++worker) {
    OutMessage each = rows;
    each.priority = priority_of(slice);  // behind kEarly
    wire_.to_worker(worker, std::move(each));
  }
}

void SliceService::pull(int worker, const Header& header) {
  pulls_[index(worker)] = header.round;
  for (const Withheld& each : std::exchange(withheld_[index(worker)], {})) {
    send_parameters(worker, each.slice, each.staleness);
  }
}

void SliceService::collect(int worker, const Header& header) {
  const SliceState& state = state_of(header);
  if (worker != 0) fail(ErrorCode::kProtocol, "worker {} asks for the optimizer's states", worker);
  if (adds_up() && state.version < header.round) {
    collects_[header.slice] = header.round;
  } else {
    send_states(header.slice);
  }
}

void SliceService::send_states(std::size_t slice) {
  for (std::size_t kind = 0; kind < kStateKinds; ++kind) {
    if (!layout_.has(static_cast<StateKind>(kind))) continue;
    const Tensor part = store_.state(static_cast<StateKind>(kind), slice);
    OutMessage state = message(Kind::kState, slice, {part.data(), part.bytes()});
    state.header.number = static_cast<double>(kind);
    wire_.to_worker(0, std::move(state));
  }
}

}  // namespace lockstep::parallel
