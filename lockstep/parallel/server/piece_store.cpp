#include "lockstep/parallel/server/piece_store.h"

#include <algorithm>

#include "lockstep/parallel/compression/own_momentum.h"
#include "lockstep/parallel/gradient_chunks.h"
#include "lockstep/parallel/server/worker_sum.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kNotMine = static_cast<std::size_t>(-1);
constexpr std::size_t kSumsAtATime = 64;

// How large each kind of memory is.
struct Sizes {
  std::size_t elements = 0;  // of this server's pieces
  std::size_t slots = 0;     // of each worker
  std::size_t landing = 0;   // bytes of each worker
  std::size_t decoded = 0;   // bytes, as the next
  std::size_t pulled = 0;

  Sizes(const ServedLayout& layout, const WireFormat& format, Consistency consistency, int server) {
    const bool adds_up = consistency == Consistency::kBsp;
    const bool compressed = format.gradients() != nullptr;
    const bool lands = !adds_up || compressed || layout.gradient != DType::kF32;
    for (const Piece& piece : layout.pieces) {
      if (piece.server != server) continue;
      const std::size_t count = piece.range.elements;
      elements += count;
      if (lands) landing = std::max(landing, format.pushed_bytes(count));
      if (compressed && !adds_up) decoded = std::max(decoded, count * sizeof(float));
      if (format.parameters() != nullptr) pulled += format.pulled_bytes(count);
    }
    if (adds_up) slots = elements;
  }
};

Shape row_of(std::size_t elements) { return {static_cast<std::int64_t>(elements)}; }

}  // namespace

std::size_t PieceStore::bytes(const ServedLayout& layout, Consistency consistency, int server,
                              int workers) {
  const Sizes sizes(layout, WireFormat(layout), consistency, server);
  std::size_t states = 0;
  for (std::size_t row = 0; row < kStateRows; ++row) {
    if (layout.has(static_cast<StateRow>(row))) states += sizeof(float);
  }
  if (layout.parameter != DType::kF32) states += size_of(layout.parameter);
  const std::size_t each = sizes.slots * sizeof(float) + sizes.landing;
  return sizes.elements * states + static_cast<std::size_t>(workers) * each + sizes.decoded +
         sizes.pulled + kSumsAtATime * sizeof(double);
}

PieceStore::PieceStore(const ServedLayout& layout, Consistency consistency, int server, int workers,
                       Ops& ops)
    : layout_(layout),
      optimizer_(optimizer_beside(layout.compression, layout.optimizer)),
      format_(layout),
      has_slots_(consistency == Consistency::kBsp),
      workers_(workers),
      ops_(ops),
      offset_(layout.pieces.size(), kNotMine),
      pulled_offset_(layout.pieces.size()),
      room_(kSumsAtATime * sizeof(double)) {
  const Sizes sizes(layout, format_, consistency, server);
  std::size_t offset = 0;
  std::size_t pulled = 0;
  for (std::size_t piece = 0; piece < layout.pieces.size(); ++piece) {
    if (at(piece).server != server) continue;
    mine_.push_back(piece);
    offset_[piece] = offset;
    offset += at(piece).range.elements;
    pulled_offset_[piece] = pulled;
    pulled += format_.pulled_bytes(at(piece).range.elements);
  }
  const auto allocate = [&](DType dtype, std::size_t elements) {
    if (elements == 0) return Tensor();
    memory_.emplace_back(elements * size_of(dtype));
    const Tensor row = memory_.back().tensor(dtype, row_of(elements));
    fill_zero(row);
    return row;
  };
  for (std::size_t row = 0; row < kStateRows; ++row) {
    if (layout.has(static_cast<StateRow>(row))) {
      states_[row] = allocate(DType::kF32, sizes.elements);
    }
  }
  if (layout.parameter != DType::kF32) rounded_ = allocate(layout.parameter, sizes.elements);
  for (int worker = 0; worker < workers; ++worker) {
    slots_.push_back(allocate(DType::kF32, sizes.slots));
    landings_.emplace_back(sizes.landing);
  }
  decoded_ = Buffer(sizes.decoded);
  pulled_ = Buffer(sizes.pulled);
}

bool PieceStore::is_mine(std::size_t piece) const {
  return piece < offset_.size() && offset_[piece] != kNotMine;
}

Tensor PieceStore::slice(const Tensor& row, std::size_t piece) const {
  if (!ops::is_given(row)) return {};
  return row.slice(static_cast<std::int64_t>(offset_[piece]),
                   static_cast<std::int64_t>(at(piece).range.elements));
}

Tensor PieceStore::state(StateRow row, std::size_t piece) const {
  return slice(states_[static_cast<std::size_t>(row)], piece);
}

Tensor PieceStore::parameters(std::size_t piece) const {
  return ops::is_given(rounded_) ? slice(rounded_, piece) : state(StateRow::kMaster, piece);
}

std::span<const std::byte> PieceStore::pulled(std::size_t piece) const {
  if (format_.parameters() != nullptr) {
    return {pulled_.data() + pulled_offset_[piece], format_.pulled_bytes(at(piece).range.elements)};
  }
  const Tensor row = parameters(piece);
  return {row.data(), row.bytes()};
}

void PieceStore::round_parameters(std::size_t piece) {
  if (ops::is_given(rounded_)) {
    ops_.run(ops::Cast{.from = state(StateRow::kMaster, piece), .to = slice(rounded_, piece)});
    ops_.synchronize();
  }
  encode_parameters(piece);
}

void PieceStore::encode_parameters(std::size_t piece) {
  if (format_.parameters() == nullptr) return;
  const std::span<std::byte> to{pulled_.data() + pulled_offset_[piece], pulled(piece).size()};
  format_.parameters()->encode(parameters(piece).as<float>(), {}, to, {}, 0);
}

Tensor PieceStore::slot(std::size_t piece, int worker) const {
  return slice(slots_[static_cast<std::size_t>(worker)], piece);
}

std::span<std::byte> PieceStore::receiving(std::size_t piece, int worker) const {
  const Buffer& landing = landings_[static_cast<std::size_t>(worker)];
  if (landing.bytes() > 0) {
    return {landing.data(), format_.pushed_bytes(at(piece).range.elements)};
  }
  const Tensor place = slot(piece, worker);
  return {place.data(), place.bytes()};
}

Tensor PieceStore::landed(std::size_t piece, int worker, std::int64_t step) {
  const Shape shape = row_of(at(piece).range.elements);
  const Buffer& landing = landings_[static_cast<std::size_t>(worker)];
  if (format_.gradients() != nullptr) {
    const Tensor numbers = has_slots_ ? slot(piece, worker) : decoded_.tensor(DType::kF32, shape);
    format_.gradients()->decode(receiving(piece, worker), numbers.as<float>(),
                                WireFormat::seed(step, piece));
    return numbers;
  }
  if (landing.bytes() == 0) return slot(piece, worker);
  const Tensor came = landing.tensor(layout_.gradient, shape);
  if (!has_slots_) return came;
  const Tensor numbers = slot(piece, worker);
  ops_.run(ops::Cast{.from = came, .to = numbers});
  ops_.synchronize();
  return numbers;
}

void PieceStore::zero(std::size_t piece, int worker) { fill_zero(slot(piece, worker)); }

Tensor PieceStore::add_up(std::size_t piece) {
  std::vector<float*> inputs;
  for (int worker = 0; worker < workers_; ++worker) {
    inputs.push_back(slot(piece, worker).as<float>().data());
  }
  sum_of_workers(inputs, at(piece).range.elements);
  return sum(piece);
}

std::vector<double> PieceStore::squares(std::size_t piece) {
  const std::vector<nn::FlatRange> chunks = chunks_of({0, at(piece).range.elements});
  return sums_of_chunks(ops_, sum(piece), chunks, room_.tensor(DType::kF64, row_of(kSumsAtATime)));
}

void PieceStore::update(std::size_t piece, const optim::UpdateStep& step, const Tensor& gradient) {
  const auto decaying = static_cast<std::int64_t>(at(piece).decaying);
  const auto elements = static_cast<std::int64_t>(at(piece).range.elements);
  const auto update_part = [&](std::int64_t first, std::int64_t count, bool decays) {
    if (count == 0) return;
    const auto part = [&](const Tensor& row) {
      return ops::is_given(row) ? row.slice(first, count) : Tensor();
    };
    optim::update(ops_, optimizer_, step,
                  {.master = part(state(StateRow::kMaster, piece)),
                   .gradient = part(gradient),
                   .parameter = part(slice(rounded_, piece)),
                   .moment = part(state(StateRow::kMoment, piece)),
                   .variance = part(state(StateRow::kVariance, piece)),
                   .velocity = part(state(StateRow::kVelocity, piece)),
                   .decays = decays});
  };
  update_part(0, decaying, true);
  update_part(decaying, elements - decaying, false);
  ops_.synchronize();
  encode_parameters(piece);
}

}  // namespace lockstep::parallel
