#include "lockstep/parallel/server/piece_store.h"

#include <algorithm>

#include "lockstep/parallel/gradient_chunks.h"
#include "lockstep/parallel/server/worker_sum.h"

namespace lockstep::parallel {
namespace {

constexpr std::size_t kNotMine = static_cast<std::size_t>(-1);
constexpr std::size_t kSumsAtATime = 64;

// How large each kind of memory is, in elements.
struct Sizes {
  std::size_t elements = 0;  // of this server's pieces
  std::size_t slots = 0;     // of each worker
  std::size_t landing = 0;   // of each worker

  Sizes(const ServedLayout& layout, Consistency consistency, int server) {
    std::size_t largest = 0;
    for (const Piece& piece : layout.pieces) {
      if (piece.server != server) continue;
      elements += piece.range.elements;
      largest = std::max(largest, piece.range.elements);
    }
    const bool adds_up = consistency == Consistency::kBsp;
    if (adds_up) slots = elements;
    if (!adds_up || layout.gradient != DType::kF32) landing = largest;
  }
};

Shape row_of(std::size_t elements) { return {static_cast<std::int64_t>(elements)}; }

}  // namespace

std::size_t PieceStore::bytes(const ServedLayout& layout, Consistency consistency, int server,
                              int workers) {
  const Sizes sizes(layout, consistency, server);
  std::size_t states = 0;
  for (std::size_t row = 0; row < kStateRows; ++row) {
    if (layout.has(static_cast<StateRow>(row))) states += sizeof(float);
  }
  if (layout.parameter != DType::kF32) states += size_of(layout.parameter);
  const std::size_t each = sizes.slots * sizeof(float) + sizes.landing * size_of(layout.gradient);
  return sizes.elements * states + static_cast<std::size_t>(workers) * each +
         kSumsAtATime * sizeof(double);
}

PieceStore::PieceStore(const ServedLayout& layout, Consistency consistency, int server, int workers,
                       Ops& ops)
    : layout_(layout),
      has_slots_(consistency == Consistency::kBsp),
      workers_(workers),
      ops_(ops),
      offset_(layout.pieces.size(), kNotMine),
      room_(kSumsAtATime * sizeof(double)) {
  const Sizes sizes(layout, consistency, server);
  std::size_t offset = 0;
  for (std::size_t piece = 0; piece < layout.pieces.size(); ++piece) {
    if (at(piece).server != server) continue;
    mine_.push_back(piece);
    offset_[piece] = offset;
    offset += at(piece).range.elements;
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
    landings_.push_back(allocate(layout.gradient, sizes.landing));
  }
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

void PieceStore::round_parameters(std::size_t piece) {
  if (!ops::is_given(rounded_)) return;
  ops_.run(ops::Cast{.from = state(StateRow::kMaster, piece), .to = slice(rounded_, piece)});
  ops_.synchronize();
}

Tensor PieceStore::slot(std::size_t piece, int worker) const {
  return slice(slots_[static_cast<std::size_t>(worker)], piece);
}

Tensor PieceStore::landing(std::size_t piece, int worker) const {
  const auto elements = static_cast<std::int64_t>(at(piece).range.elements);
  return landings_[static_cast<std::size_t>(worker)].slice(0, elements);
}

std::span<std::byte> PieceStore::receiving(std::size_t piece, int worker) const {
  const bool lands = !has_slots_ || layout_.gradient != DType::kF32;
  const Tensor place = lands ? landing(piece, worker) : slot(piece, worker);
  return {place.data(), place.bytes()};
}

void PieceStore::landed(std::size_t piece, int worker) {
  if (layout_.gradient == DType::kF32) return;
  ops_.run(ops::Cast{.from = landing(piece, worker), .to = slot(piece, worker)});
  ops_.synchronize();
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
    optim::update(ops_, layout_.optimizer, step,
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
}

}  // namespace lockstep::parallel
