#include "lockstep/parallel/zero/machine_exchange.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/device_communicator.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kPlaceAlignment = 64;
std::size_t rounded_up(std::size_t bytes) {
  return (bytes + kPlaceAlignment - 1) / kPlaceAlignment * kPlaceAlignment;
}

Data bytes_of(std::span<std::byte> memory) { return {memory.data(), memory.size(), DType::kU8}; }

Quantization quantization_of_weights(const ParallelOptions& options) {
  return options.zero == 3 ? options.quantized_weights : Quantization::kNone;
}

bool keeps_secondary(const ParallelOptions& options, const MachineGrid& grid) {
  return options.secondary_partition && grid.machines > 1;
}

// Bytes of what an exchange needs for a moment, of one unit.
struct StagingParts {
  std::size_t lane = 0;      // payloads of a lane's parts
  std::size_t payloads = 0;  // of all parts, where they are decoded
  std::size_t sums = 0;      // of a lane's parts, by this node
  std::size_t outgoing = 0;  // payloads of these
  std::size_t incoming = 0;

  std::size_t to_gather() const { return lane + payloads; }
  std::size_t to_add_up() const { return sums + outgoing + incoming; }
};

StagingParts staging_parts(const ParallelOptions& options, const MachineGrid& grid,
                           const nn::Setup& setup, std::size_t part) {
  const PartWire weights(quantization_of_weights(options), setup.dtype);
  const PartWire gradients(options.quantized_gradients, setup.gradient);
  const auto machines = static_cast<std::size_t>(grid.machines);
  const auto workers = machines * static_cast<std::size_t>(grid.places);
  const bool tree = options.reduction == Reduction::kTree;
  StagingParts parts;
  if (!keeps_secondary(options, grid)) parts.lane = rounded_up(machines * weights.bytes(part));
  if (!weights.is_exact()) parts.payloads = rounded_up(workers * weights.bytes(part));
  if (tree || machines == 1) return parts;  // summed in one stage
  parts.sums = rounded_up(machines * part * size_of(setup.gradient));
  if (!gradients.is_exact()) {
    parts.outgoing = parts.incoming = rounded_up(machines * gradients.bytes(part));
  }
  return parts;
}

std::size_t part_of(const nn::MemoryPlan& plan, const MachineGrid& grid, std::size_t unit) {
  return plan.flat.range(unit).elements / static_cast<std::size_t>(grid.machines * grid.places);
}

std::size_t staging_bytes(const ParallelOptions& options, const MachineGrid& grid,
                          const nn::MemoryPlan& plan) {
  std::size_t most = 0;
  for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
    const StagingParts parts = staging_parts(options, grid, plan.setup, part_of(plan, grid, unit));
    most = std::max({most, parts.to_gather(), parts.to_add_up()});
  }
  return most;
}

// Where each unit's payloads of a lane are kept, and last the end of all; empty: nowhere.
std::vector<std::size_t> secondary_firsts(const ParallelOptions& options, const MachineGrid& grid,
                                          const nn::MemoryPlan& plan) {
  if (!keeps_secondary(options, grid)) return {};
  const PartWire weights(quantization_of_weights(options), plan.setup.dtype);
  std::vector<std::size_t> firsts{0};
  for (std::size_t unit = 0; unit < plan.flat.blocks(); ++unit) {
    const std::size_t bytes = weights.bytes(part_of(plan, grid, unit));
    firsts.push_back(firsts.back() + rounded_up(static_cast<std::size_t>(grid.machines) * bytes));
  }
  return firsts;
}

// A worker sends its shard, or its sums, to one worker of every other node, and the shards of its
// lane to the other workers of its node. `inside` and `across` are the bytes of a shard in each
// stage.
SentBytes sent_of_part(const MachineGrid& grid, std::size_t inside, std::size_t across) {
  const auto machines = static_cast<std::uint64_t>(grid.machines);
  const auto places = static_cast<std::uint64_t>(grid.places);
  const std::uint64_t crosses = (machines - 1) * across;
  const std::uint64_t stays = (places - 1) * machines * inside;
  const LinkBytes links{.inside = stays, .across = crosses};
  return {.all = stays + crosses, .links = machines * places * links};
}

SentBytes sent_to_gather(const MachineGrid& grid, const PartWire& weights, std::size_t part,
                         bool crosses) {
  const std::size_t each = weights.bytes(part);
  return sent_of_part(grid, each, crosses ? each : 0);
}

SentBytes sent_to_add_up(const MachineGrid& grid, const PartWire& gradients, DType dtype,
                         std::size_t part) {
  return sent_of_part(grid, part * size_of(dtype), gradients.bytes(part));
}

// Over the memory of the workers' device. Sums inside a node and across nodes have orders of their
// own. `staged`: data lies in the memory of another communicator.
std::unique_ptr<Communicator> on_device(std::unique_ptr<Communicator> group,
                                        const ParallelOptions& options, bool staged) {
  if (options.device == Device{}) return group;
  return make_device_communicator(
      std::move(group), {.device = options.device,
                         .timeout = options.comm.timeout,
                         .backend = options.comm.device_backend,
                         .staged = staged,
                         .at_once = options.device_ranks == 1 ? 0 : options.device_ranks});
}

Tensor slice(const Tensor& whole, std::size_t first, std::size_t elements) {
  return whole.slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(elements));
}

}  // namespace

std::vector<Request> MachineExchange::memory(const ParallelOptions& options,
                                             const MachineGrid& grid, const nn::MemoryPlan& plan) {
  // On a GPU symmetric memory is whole pages, and there is a communicator more for workers of
  // several nodes, and for sums in the order of the tree: for them the memory of the node's
  // communicator is any.
  const bool on_gpu = options.device != Device{};
  const auto allocated = [&](std::size_t bytes) {
    return on_gpu ? symmetric_device_bytes(std::max<std::size_t>(bytes, 1)) : bytes;
  };
  std::size_t others = codec_device_bytes(options.device);
  if (on_gpu && grid.machines > 1) others += device_communicator_bytes(true);
  if (on_gpu && options.reduction == Reduction::kTree) {
    std::vector<int> nodes;
    for (int worker = 0; worker < grid.machines * grid.places; ++worker) {
      nodes.push_back(grid.machine_of(worker));
    }
    others += device_communicator_bytes(options.comm.device_backend, nodes, true);
  }
  std::vector<Request> requests;
  requests.push_back({.name = "exchange",
                      .group = kCommunicationGroup,
                      .bytes = allocated(staging_bytes(options, grid, plan)) + others});
  const std::vector<std::size_t> firsts = secondary_firsts(options, grid, plan);
  if (!firsts.empty()) {
    requests.push_back({.name = "secondary partition",
                        .group = kSecondaryGroup,
                        .bytes = allocated(firsts.back())});
  }
  return requests;
}

UnitTraffic MachineExchange::traffic(const ParallelOptions& options, const MachineGrid& grid,
                                     const nn::MemoryPlan& plan, std::size_t unit,
                                     const PlannedGroups& calls) {
  const PartWire weights(quantization_of_weights(options), plan.setup.dtype);
  const PartWire gradients(options.quantized_gradients, plan.setup.gradient);
  const std::size_t part = part_of(plan, grid, unit);
  UnitTraffic traffic{
      .gather = sent_to_gather(grid, weights, part, true),
      .gather_again = sent_to_gather(grid, weights, part, !keeps_secondary(options, grid)),
      .add_up = sent_to_add_up(grid, gradients, plan.setup.gradient, part)};
  if (options.reduction == Reduction::kTree) {
    traffic.add_up = FlatExchange::traffic(options, plan, unit, calls).add_up;
  }
  return traffic;
}

MachineExchange::MachineExchange(Communicator& world, const ParallelOptions& options,
                                 const MachineGrid& grid)
    : options_(options),
      grid_(grid),
      worker_(world.rank()),
      codec_device_(make_codec_device(options.device)) {
  inside_ = on_device(world.split(grid.machine_of(worker_), worker_), options, false);
  if (grid.machines > 1) {
    across_ = on_device(world.split(grid.place_of(worker_), worker_), options, true);
  }
  if (options.reduction == Reduction::kTree) flat_ = std::make_unique<FlatExchange>(world, options);
}

void MachineExchange::start(const nn::MemoryPlan& plan) {
  if (flat_) flat_->start(plan);
  weights_ = std::make_unique<PartWire>(quantization_of_weights(options_), plan.setup.dtype,
                                        *codec_device_);
  gradients_ =
      std::make_unique<PartWire>(options_.quantized_gradients, plan.setup.gradient, *codec_device_);
  staging_ = inside_->allocate(staging_bytes(options_, grid_, plan));
  secondary_firsts_ = secondary_firsts(options_, grid_, plan);
  if (!secondary_firsts_.empty()) {
    secondary_ = inside_->allocate(secondary_firsts_.back());
    kept_.assign(plan.flat.blocks(), false);
  }
}

std::span<std::byte> MachineExchange::staging(std::size_t first, std::size_t bytes) const {
  return {staging_.data() + first, bytes};
}

std::uint64_t MachineExchange::bytes_sent() const {
  std::uint64_t bytes = inside_->bytes_sent();
  if (across_) bytes += across_->bytes_sent();
  if (flat_) bytes += flat_->bytes_sent();
  return bytes;
}

std::uint64_t MachineExchange::bytes_across() const {
  std::uint64_t bytes = 0;
  if (across_) bytes += across_->bytes_across().value_or(0);
  if (flat_) bytes += flat_->bytes_across();
  return bytes;
}

std::span<std::byte> MachineExchange::lane_payloads(std::size_t unit, const Tensor& mine) {
  const std::size_t each = weights_->bytes(mine.elements());
  const auto machines = static_cast<std::size_t>(grid_.machines);
  const bool keeps = !secondary_firsts_.empty();
  const std::span<std::byte> lane =
      keeps ? std::span(secondary_.data() + secondary_firsts_[unit], machines * each)
            : staging(0, machines * each);
  if (has_lane(unit)) return lane;
  const std::span<std::byte> own =
      lane.subspan(static_cast<std::size_t>(grid_.machine_of(worker_)) * each, each);
  weights_->encode(data_of(mine), own);
  if (across_) across_->all_gather(bytes_of(own), bytes_of(lane));
  if (keeps) kept_[unit] = true;
  return lane;
}

void MachineExchange::gather(std::size_t unit, const Tensor& mine, const Tensor& whole) {
  const auto machines = static_cast<std::size_t>(grid_.machines);
  const auto places = static_cast<std::size_t>(grid_.places);
  const std::size_t part = mine.elements();
  const std::size_t each = weights_->bytes(part);
  const std::span<std::byte> lane = lane_payloads(unit, mine);
  if (weights_->is_exact()) {
    // The shards of a node are contiguous in the unit.
    for (std::size_t machine = 0; machine < machines; ++machine) {
      const Tensor parts = slice(whole, machine * places * part, places * part);
      inside_->all_gather(Data(lane.data() + machine * each, part, mine.dtype()), data_of(parts));
    }
    return;
  }
  const std::size_t after_lane = secondary_firsts_.empty() ? rounded_up(lane.size()) : 0;
  const std::span<std::byte> payloads = staging(after_lane, places * lane.size());
  inside_->all_gather(bytes_of(lane), bytes_of(payloads));
  for (std::size_t place = 0; place < places; ++place) {
    for (std::size_t machine = 0; machine < machines; ++machine) {
      weights_->decode(payloads.subspan((place * machines + machine) * each, each),
                       data_of(slice(whole, (machine * places + place) * part, part)));
    }
  }
}

void MachineExchange::add_up(std::size_t unit, const Tensor& gradients, const Tensor& mine) {
  if (flat_) return flat_->add_up(unit, gradients, mine);
  if (!across_) {
    inside_->reduce_scatter(data_of(gradients), data_of(mine));
    return;
  }
  const auto machines = static_cast<std::size_t>(grid_.machines);
  const auto places = static_cast<std::size_t>(grid_.places);
  const std::size_t part = mine.elements();
  const std::size_t part_bytes = part * size_of(mine.dtype());
  const auto sums_of = [&](std::size_t machine) {
    return Data(staging_.data() + machine * part_bytes, part, mine.dtype());
  };
  for (std::size_t machine = 0; machine < machines; ++machine) {
    const Tensor parts = slice(gradients, machine * places * part, places * part);
    inside_->reduce_scatter(data_of(parts), sums_of(machine));
  }
  const auto own = static_cast<std::size_t>(grid_.machine_of(worker_));
  if (gradients_->is_exact()) {
    across_->reduce_scatter(Data(staging_.data(), machines * part, mine.dtype()), data_of(mine));
    return;
  }
  const std::size_t each = gradients_->bytes(part);
  const std::size_t first = rounded_up(machines * part_bytes);
  const std::span<std::byte> outgoing = staging(first, machines * each);
  const std::span<std::byte> incoming =
      staging(first + rounded_up(machines * each), machines * each);
  for (std::size_t machine = 0; machine < machines; ++machine) {
    if (machine == own) continue;
    gradients_->encode(sums_of(machine), outgoing.subspan(machine * each, each));
  }
  across_->all_to_all(bytes_of(outgoing), bytes_of(incoming));
  gradients_->sum(incoming, own, sums_of(own), data_of(mine));
}

}  // namespace lockstep::parallel
