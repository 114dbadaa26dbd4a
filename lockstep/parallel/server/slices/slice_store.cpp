#include "lockstep/parallel/server/slices/slice_store.h"

#include <algorithm>

#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/server/slices/worker_sum.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kNotMine = static_cast<std::size_t>(-1);

// How large each kind of memory is.
struct Sizes {
  std::size_t elements = 0;  // of this server's slices
  std::size_t slots = 0;     // of each worker
  std::size_t sum = 0;       // as these
  std::size_t landing = 0;   // bytes of each worker
  std::size_t decoded = 0;   // bytes, as the next
  std::size_t pulled = 0;

  Sizes(const ServedLayout& layout, const WireFormat& format, Consistency consistency, int server) {
    const bool adds_up = consistency == Consistency::kBsp;
    const bool compressed = format.gradients() != nullptr;
    const bool lands = !adds_up || compressed;
    for (const Slice& slice : layout.slices) {
      if (slice.server != server) continue;
      const std::size_t count = slice.range.elements;
      elements += count;
      if (lands) landing = std::max(landing, format.pushed_bytes(count));
      if (compressed && !adds_up) decoded = std::max(decoded, count * sizeof(float));
      if (format.parameters() != nullptr) pulled += format.pulled_bytes(count);
    }
    if (!adds_up) return;
    slots = elements;
    sum = std::min(largest_slice(layout.slices), kChunkElements);
  }
};

DType slot_type(const ServedLayout& layout, const WireFormat& format) {
  return format.gradients() != nullptr ? DType::kF32 : layout.gradient;
}

// Absent where the flat buffer is.
Tensor part_of(const Tensor& buffer, nn::FlatRange range) {
  if (!ops::is_given(buffer)) return {};
  return buffer.slice(static_cast<std::int64_t>(range.first),
                      static_cast<std::int64_t>(range.elements));
}

Shape shape_of(std::size_t elements) { return {static_cast<std::int64_t>(elements)}; }

}  // namespace

std::size_t SliceStore::bytes(const ServedLayout& layout, Consistency consistency, int server,
                              int workers) {
  const WireFormat format(layout);
  const Sizes sizes(layout, format, consistency, server);
  std::size_t states = 0;
  for (std::size_t kind = 0; kind < kStateKinds; ++kind) {
    if (layout.has(static_cast<StateKind>(kind))) states += sizeof(float);
  }
  if (layout.parameter != DType::kF32) states += size_of(layout.parameter);
  const std::size_t each = sizes.slots * size_of(slot_type(layout, format)) + sizes.landing;
  return sizes.elements * states + static_cast<std::size_t>(workers) * each +
         sizes.sum * sizeof(float) + sizes.decoded + sizes.pulled + sizeof(double);
}

SliceStore::SliceStore(const ServedLayout& layout, Consistency consistency, int server, int workers,
                       Ops& ops)
    : layout_(layout),
      optimizer_(optimizer_beside(layout.compression, layout.optimizer)),
      format_(layout),
      has_slots_(consistency == Consistency::kBsp),
      workers_(workers),
      ops_(ops),
      offset_(layout.slices.size(), kNotMine),
      pulled_offset_(layout.slices.size()),
      workspace_(sizeof(double)) {
  const Sizes sizes(layout, format_, consistency, server);
  std::size_t offset = 0;
  std::size_t pulled = 0;
  for (std::size_t slice = 0; slice < layout.slices.size(); ++slice) {
    if (at(slice).server != server) continue;
    mine_.push_back(slice);
    offset_[slice] = offset;
    offset += at(slice).range.elements;
    pulled_offset_[slice] = pulled;
    pulled += format_.pulled_bytes(at(slice).range.elements);
  }
  const auto allocate = [&](DType dtype, std::size_t elements) {
    if (elements == 0) return Tensor();
    memory_.emplace_back(elements * size_of(dtype));
    const Tensor buffer = memory_.back().tensor(dtype, shape_of(elements));
    fill_zero(buffer);
    return buffer;
  };
  for (std::size_t kind = 0; kind < kStateKinds; ++kind) {
    if (layout.has(static_cast<StateKind>(kind))) {
      states_[kind] = allocate(DType::kF32, sizes.elements);
    }
  }
  if (layout.parameter != DType::kF32) rounded_ = allocate(layout.parameter, sizes.elements);
  for (int worker = 0; worker < workers; ++worker) {
    slots_.push_back(allocate(slot_type(layout, format_), sizes.slots));
    landings_.emplace_back(sizes.landing);
  }
  sum_ = allocate(DType::kF32, sizes.sum);
  decoded_ = Buffer(sizes.decoded);
  pulled_ = Buffer(sizes.pulled);
}

bool SliceStore::is_mine(std::size_t slice) const {
  return slice < offset_.size() && offset_[slice] != kNotMine;
}

Tensor SliceStore::view(const Tensor& buffer, std::size_t slice) const {
  return part_of(buffer, {offset_[slice], at(slice).range.elements});
}

Tensor SliceStore::state(StateKind kind, std::size_t slice) const {
  return view(states_[static_cast<std::size_t>(kind)], slice);
}

Tensor SliceStore::parameters(std::size_t slice) const {
  return ops::is_given(rounded_) ? view(rounded_, slice) : state(StateKind::kMaster, slice);
}

std::span<const std::byte> SliceStore::pulled(std::size_t slice) const {
  if (format_.parameters() != nullptr) {
    return {pulled_.data() + pulled_offset_[slice], format_.pulled_bytes(at(slice).range.elements)};
  }
  const Tensor buffer = parameters(slice);
  return {buffer.data(), buffer.bytes()};
}

void SliceStore::round_parameters(std::size_t slice) {
  if (ops::is_given(rounded_)) {
    ops_.run(ops::Cast{.from = state(StateKind::kMaster, slice), .to = view(rounded_, slice)});
    ops_.synchronize();
  }
  encode_parameters(slice);
}

void SliceStore::encode_parameters(std::size_t slice) {
  if (format_.parameters() == nullptr) return;
  const std::span<std::byte> to{pulled_.data() + pulled_offset_[slice], pulled(slice).size()};
  format_.parameters()->encode(parameters(slice).as<float>(), {}, to, {}, 0);
}

Tensor SliceStore::slot(std::size_t slice, int worker) const {
  return view(slots_[static_cast<std::size_t>(worker)], slice);
}

std::span<std::byte> SliceStore::receiving(std::size_t slice, int worker) const {
  const Buffer& landing = landings_[static_cast<std::size_t>(worker)];
  if (landing.bytes() > 0) {
    return {landing.data(), format_.pushed_bytes(at(slice).range.elements)};
  }
  const Tensor place = slot(slice, worker);
  return {place.data(), place.bytes()};
}

Tensor SliceStore::landed(std::size_t slice, int worker, std::int64_t step) {
  const Shape shape = shape_of(at(slice).range.elements);
  const Buffer& landing = landings_[static_cast<std::size_t>(worker)];
  if (format_.gradients() != nullptr) {
    const Tensor numbers = has_slots_ ? slot(slice, worker) : decoded_.tensor(DType::kF32, shape);
    format_.gradients()->decode(receiving(slice, worker), numbers.as<float>(),
                                WireFormat::seed(step, slice));
    return numbers;
  }
  return landing.bytes() == 0 ? slot(slice, worker) : landing.tensor(layout_.gradient, shape);
}

void SliceStore::zero(std::size_t slice, int worker) { fill_zero(slot(slice, worker)); }

// At most a chunk.
Tensor SliceStore::sum(std::size_t slice, nn::FlatRange range) {
  std::vector<const std::byte*> inputs;
  const auto part = [&](const Tensor& buffer) { return part_of(buffer, range); };
  for (int worker = 0; worker < workers_; ++worker) {
    inputs.push_back(part(slot(slice, worker)).data());
  }
  const Tensor sum = part_of(sum_, {0, range.elements});
  sum_of_workers(inputs, slots_.front().dtype(), sum.as<float>());
  return sum;
}

std::vector<double> SliceStore::squares(std::size_t slice) {
  return sums_of_chunks(
      ops_, [&](nn::FlatRange chunk) { return sum(slice, chunk); },
      chunks_of({0, at(slice).range.elements}), workspace_.tensor(DType::kF64, shape_of(1)));
}

// Parts that decay and those that do not are updated apart.
void SliceStore::update_range(std::size_t slice, nn::FlatRange range, const optim::UpdateStep& step,
                              const Tensor& gradient) {
  const std::size_t decaying = std::clamp(at(slice).decaying, range.first, range.end());
  const auto update_part = [&](nn::FlatRange part, bool decays) {
    if (part.elements == 0) return;
    const auto of = [&](const Tensor& buffer) { return part_of(buffer, part); };
    optim::update(ops_, optimizer_, step,
                  {.master = of(state(StateKind::kMaster, slice)),
                   .gradient = part_of(gradient, {part.first - range.first, part.elements}),
                   .parameter = of(view(rounded_, slice)),
                   .first_moment = of(state(StateKind::kFirstMoment, slice)),
                   .second_moment = of(state(StateKind::kSecondMoment, slice)),
                   .velocity = of(state(StateKind::kVelocity, slice)),
                   .decays = decays});
  };
  update_part({range.first, decaying - range.first}, true);
  update_part({decaying, range.end() - decaying}, false);
  ops_.synchronize();
}

void SliceStore::update(std::size_t slice, const optim::UpdateStep& step, const Tensor& gradient) {
  update_range(slice, {0, at(slice).range.elements}, step, gradient);
  encode_parameters(slice);
}

void SliceStore::update_by_sum(std::size_t slice, const optim::UpdateStep& step, const Runs& runs) {
  for (const nn::FlatRange& run : runs) {
    for (const nn::FlatRange& chunk : chunks_of(run)) {
      update_range(slice, chunk, step, sum(slice, chunk));
    }
  }
  encode_parameters(slice);
}

void SliceStore::replace(std::size_t slice, int worker, const Runs& runs,
                         std::span<const std::byte> values) {
  const Tensor gradients = slot(slice, worker);
  put_runs(runs, size_of(gradients.dtype()), values, {gradients.data(), gradients.bytes()});
}

void SliceStore::copy_parameters(std::size_t slice, const Runs& runs,
                                 std::span<std::byte> to) const {
  const Tensor buffer = parameters(slice);
  take_runs(runs, size_of(buffer.dtype()), {buffer.data(), buffer.bytes()}, to);
}

}  // namespace lockstep::parallel
