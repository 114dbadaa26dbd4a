#include "lockstep/parallel/offload/local_update.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/optim/gradient_norm.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/gradients/shared_blocks.h"
#include "lockstep/parallel/offload/gradient_reader.h"

namespace lockstep::parallel {
namespace {

// Elements of this worker's part of a block that are updated alike.
struct Piece {
  nn::FlatRange range;  // in the part
  bool decays = true;
};

// Each lies in one chunk of what lies in a file.
std::vector<Piece> pieces_of(const nn::Replica& replica, std::size_t block, std::size_t most) {
  std::vector<Piece> pieces;
  const nn::FlatRange mine = replica.my_range(block);
  const std::size_t chunk =
      replica.state_file() != nullptr ? replica.plan().state_file.chunk_elements : mine.elements;
  for (const nn::FlatRun& run : replica.flat().runs(block)) {
    const std::size_t end = std::min(run.range.end(), mine.end());
    for (std::size_t first = std::max(run.range.first, mine.first); first < end;) {
      const std::size_t at = first - mine.first;
      const std::size_t count = std::min({most, end - first, chunk - at % chunk});
      pieces.push_back({{at, count}, run.decays});
      first += count;
    }
  }
  return pieces;
}

// The states of a block's chunks, requested in order, from any tier.
class PieceStates {
 public:
  PieceStates(nn::Replica& replica, Ops& ops, std::size_t block)
      : stream_(replica, nn::StateAccess::kUpdate, block),
        ops_(ops),
        waits_(replica.state_file() != nullptr),
        first_(replica.my_range(block).first) {}

  // Holds until the next call.
  nn::States of(const Piece& piece) {
    const std::size_t first = first_ + piece.range.first;
    while (first >= stream_.range().end() && next()) {
    }
    return stream_.states().slice({first - stream_.range().first, piece.range.elements});
  }
  void finish() {
    while (next()) {
    }
  }

 private:
  bool next() {
    if (waits_) ops_.synchronize();  // what is computed goes to the file now
    return stream_.next();
  }

  nn::StateStream stream_;
  Ops& ops_;
  bool waits_;
  std::size_t first_;
};

// Chunks of a block that are copied to the optimizer's tier and back.
class StagedPieces {
 public:
  StagedPieces(nn::Replica& replica, TierMover& mover, std::size_t block)
      : mover_(mover),
        block_(block),
        is_filed_(replica.gradient_file() != nullptr),
        mine_(replica.mine(block)),
        gradients_(replica.staged_gradients()),
        parameters_(replica.staged_parameters()),
        reads_parameters_(replica.setup().dtype == DType::kF32) {}

  // Two of them are there at once: the mover takes the last but one away before.
  TierMover::Ticket fetch(std::size_t index, const Piece& piece) {
    TierMover::Ticket ticket = 0;
    const nn::States states = mine_.slice(piece.range);
    if (ops::is_given(gradients_)) {
      const Tensor to = slot(gradients_, index, piece);
      ticket = is_filed_ ? mover_.fetch_gradients(block_, piece.range.first, to)
                         : mover_.copy(to, states.gradients, {.kind = "fetch", .of = "gradients"});
    }
    if (ops::is_given(parameters_) && reads_parameters_) {
      ticket = mover_.copy(slot(parameters_, index, piece), states.parameters,
                           {.kind = "fetch", .of = "parameters"});
    }
    return ticket;
  }
  TierMover::Ticket store(std::size_t index, const Piece& piece) {
    if (!ops::is_given(parameters_)) return 0;
    return mover_.copy(mine_.slice(piece.range).parameters, slot(parameters_, index, piece),
                       {.kind = "store", .of = "parameters"});
  }
  // The states of a chunk, at the addresses that the optimizer uses.
  nn::States placed(std::size_t index, const Piece& piece, nn::States states) const {
    if (ops::is_given(gradients_)) states.gradients = slot(gradients_, index, piece);
    if (ops::is_given(parameters_)) {
      states.parameters = slot(parameters_, index, piece);
      if (reads_parameters_) states.master = states.parameters;
    }
    return states;
  }

 private:
  static Tensor slot(const Tensor& staged, std::size_t index, const Piece& piece) {
    return staged.row(static_cast<std::int64_t>(index % 2))
        .slice(0, static_cast<std::int64_t>(piece.range.elements));
  }

  TierMover& mover_;
  std::size_t block_;
  bool is_filed_;  // gradients are
  nn::States mine_;
  Tensor gradients_;
  Tensor parameters_;
  bool reads_parameters_;
};

std::vector<double> sums_of_all(nn::Replica& replica, TierMover& mover) {
  const Tensor workspace = replica.sums_of_squares();
  if (replica.gradient_file() == nullptr) {
    const bool on_host = replica.plan().tiers.gradients == Tier::kHost;
    return sums_of_chunks(on_host ? replica.host_ops() : replica.ops(), replica.states().gradients,
                          gradient_chunks(replica.flat()), workspace);
  }
  // They are read where the optimizer computes.
  Ops& ops = replica.plan().tiers.update() == Tier::kHost ? replica.host_ops() : replica.ops();
  std::vector<double> all;
  for (std::size_t block = replica.flat().blocks();
       block-- > 0;) {  // as they stand in the flat buffer
    const auto sums = sums_of_mine(replica, ops, mover, block, workspace);
    all.insert(all.end(), sums.begin(), sums.end());
  }
  return all;
}

}  // namespace

void update_elements(Ops& ops, const UpdateRequest& request, double gradient_norm, bool rounds,
                     const nn::States& states, bool decays) {
  const double clip = optim::clip_factor(gradient_norm, request.optimizer.max_grad_norm);
  const optim::UpdateStep step{.step = request.updates + 1,
                               .rate = request.rate,
                               .gradient_scale = clip / request.loss_scale};
  optim::update(ops, request.optimizer, step,
                {.master = states.master,
                 .gradient = states.gradients,
                 .parameter = rounds ? states.parameters : Tensor(),
                 .first_moment = states.first_moment,
                 .second_moment = states.second_moment,
                 .velocity = states.velocity,
                 .decays = decays});
}

std::vector<double> sums_of_mine(nn::Replica& replica, Ops& ops, TierMover& mover,
                                 std::size_t block, const Tensor& workspace) {
  GradientReader reader(replica, ops, mover);
  return sums_of_chunks(
      ops, [&](nn::FlatRange chunk) { return reader.read(block, chunk); },
      chunks_of({0, replica.my_range(block).elements}), workspace);
}

std::vector<double> replicated_squares_of_mine(nn::Replica& replica, TierMover& mover) {
  if (replica.tensor_group().size == 1) return {};
  const bool on_host = replica.sums_of_squares().device() == Device{};
  Ops& ops = on_host ? replica.host_ops() : replica.ops();
  GradientReader reader(replica, ops, mover);
  return replicated_squares(replica, ops, [&](std::size_t block, nn::FlatRange range) {
    return reader.read(block, range);
  });
}

UpdateResult result_of(ModelNorm norm, double loss_scale) {
  for (double& block : norm.blocks) block /= loss_scale;
  const double whole = norm.whole / loss_scale;
  return {.gradient_norm = whole,
          .block_norms = std::move(norm.blocks),
          .skipped = !std::isfinite(whole)};
}

UpdateResult norm_of_update(nn::Replica& replica, TierMover& mover, const UpdateRequest& request) {
  add_up_shared_blocks(replica);
  const std::vector<double> sums = sums_of_all(replica, mover);
  return result_of(norm_of_model(replica, sums, replicated_squares_of_mine(replica, mover)),
                   request.loss_scale);
}

UpdateResult local_update(nn::Replica& replica, TierMover& mover, const UpdateRequest& request) {
  const UpdateResult result = norm_of_update(replica, mover, request);
  if (result.skipped) return result;
  Ops& update_ops =
      replica.plan().tiers.update() == Tier::kHost ? replica.host_ops() : replica.ops();
  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    update_mine(replica, update_ops, mover, block, request, result.gradient_norm);
  }
  update_ops.synchronize();
  return result;
}

nn::States delayed_states(const nn::Replica& replica, std::size_t block) {
  const nn::States buffers{.parameters = replica.next_parameters(),
                           .gradients = replica.delayed_gradients()};
  const nn::States delayed = buffers.slice(replica.my_range(block));
  nn::States states = replica.mine(block);
  if (ops::is_given(delayed.parameters)) states.parameters = delayed.parameters;
  states.gradients = delayed.gradients;
  return states;
}

void update_delayed(nn::Replica& replica, Ops& ops, std::size_t block, const UpdateRequest& request,
                    double gradient_norm) {
  replica.before_change(block);
  const bool rounds = replica.setup().dtype != DType::kF32;
  const nn::States states = delayed_states(replica, block);
  for (const Piece& piece : pieces_of(replica, block, replica.my_range(block).elements)) {
    update_elements(ops, request, gradient_norm, rounds, states.slice(piece.range), piece.decays);
  }
}

void update_mine(nn::Replica& replica, Ops& ops, TierMover& mover, std::size_t block,
                 const UpdateRequest& request, double gradient_norm) {
  const bool rounds = replica.setup().dtype != DType::kF32;
  replica.before_change(block);
  const std::size_t staged = replica.plan().staged_elements;
  const std::size_t most = staged > 0 ? staged : replica.flat().range(block).elements;
  const std::vector<Piece> pieces = pieces_of(replica, block, most);
  PieceStates states(replica, ops, block);
  if (staged == 0) {
    for (const Piece& piece : pieces) {
      update_elements(ops, request, gradient_norm, rounds, states.of(piece), piece.decays);
    }
    states.finish();
    return;
  }
  StagedPieces there(replica, mover, block);
  TierMover::Ticket fetched[2] = {};
  TierMover::Ticket stored[2] = {};
  if (!pieces.empty()) fetched[0] = there.fetch(0, pieces[0]);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i + 1 < pieces.size()) fetched[(i + 1) % 2] = there.fetch(i + 1, pieces[i + 1]);
    mover.await(std::max(fetched[i % 2], stored[i % 2]));
    update_elements(ops, request, gradient_norm, rounds,
                    there.placed(i, pieces[i], states.of(pieces[i])), pieces[i].decays);
    ops.synchronize();
    stored[i % 2] = there.store(i, pieces[i]);
  }
  states.finish();
  mover.await(std::max(stored[0], stored[1]));
}

}  // namespace lockstep::parallel
