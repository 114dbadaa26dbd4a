#include "lockstep/parallel/zero/sharded_norm.h"

#include <algorithm>
#include <utility>

#include "lockstep/parallel/communication/gathered.h"
#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/offload/gradient_reader.h"

namespace lockstep::parallel {

std::size_t ShardedNorm::Piece::numbers() const {
  return is_whole ? 1 : ops::run_count(range.elements);
}

ShardedNorm::ShardedNorm(const nn::MemoryPlan& plan)
    : chunks_(gradient_chunks(plan.flat).size()), sharding_(plan.sharding) {
  for (std::size_t block = 0; block < plan.flat.blocks(); ++block) {
    has_experts_.push_back(plan.flat.has_experts(block));
  }
  for (int each = 0; each < sharding_.workers; ++each) {
    pieces_.push_back(pieces_of(plan.flat, plan.shards, each));
    std::size_t numbers = 0;
    for (const Piece& piece : pieces_.back()) numbers += piece.numbers();
    most_numbers_ = std::max(most_numbers_, numbers);
  }
}

std::vector<ShardedNorm::Piece> ShardedNorm::pieces_of(const nn::FlatParameters& flat,
                                                       const nn::Shards& shards, int worker) {
  std::vector<Piece> pieces;
  std::size_t index = 0;
  for (std::size_t block = flat.blocks(); block-- > 0;) {
    const nn::FlatRange part = shards.of(block, worker);
    for (const nn::FlatRange& chunk : chunks_of(flat.range(block))) {
      const std::size_t first = std::max(part.first, chunk.first);
      const std::size_t end = std::min(part.end(), chunk.end());
      if (first < end) {
        const nn::FlatRange range{first, end - first};
        pieces.push_back(
            {.block = block, .chunk = index, .range = range, .is_whole = range == chunk});
      }
      ++index;
    }
  }
  return pieces;
}

namespace {

// Sums of squares in sequence, as many in flight as the buffer holds.
class Sums {
 public:
  explicit Sums(nn::Replica& replica)
      : ops_(replica.sums_of_squares().device() == Device{} ? replica.host_ops() : replica.ops()),
        workspace_(replica.sums_of_squares()) {}

  // Compute where the workspace is.
  Ops& ops() const { return ops_; }
  std::size_t most() const { return workspace_.elements(); }
  void add(const Tensor& x, std::size_t count) {
    if (used_ + count > most()) flush();
    ops_.run(ops::SumOfSquares{.x = x, .result = part(used_, count)});
    used_ += count;
  }
  std::vector<double> take() {
    flush();
    return std::move(numbers_);
  }

 private:
  Tensor part(std::size_t first, std::size_t count) const {
    return workspace_.slice(static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
  }
  void flush() {
    if (used_ == 0) return;
    ops_.synchronize();
    numbers_.resize(numbers_.size() + used_);
    copy(tensor_of(std::span(numbers_).last(used_)), part(0, used_));
    used_ = 0;
  }

  Ops& ops_;
  Tensor workspace_;
  std::size_t used_ = 0;
  std::vector<double> numbers_;
};

}  // namespace

std::vector<double> ShardedNorm::numbers_of_mine(nn::Replica& replica, TierMover& mover) const {
  Sums sums(replica);
  GradientReader reader(replica, sums.ops(), mover);
  for (const Piece& piece : pieces_[static_cast<std::size_t>(sharding_.worker)]) {
    const std::size_t first = piece.range.first - replica.my_range(piece.block).first;
    const std::size_t step =
        piece.is_whole ? piece.range.elements : sums.most() * ops::SumOfSquares::kRun;
    for (std::size_t done = 0; done < piece.range.elements; done += step) {
      const std::size_t elements = std::min(step, piece.range.elements - done);
      sums.add(reader.read(piece.block, {first + done, elements}),
               piece.is_whole ? 1 : ops::run_count(elements));
    }
  }
  return sums.take();
}

std::vector<double> ShardedNorm::take(Communicator& world, nn::Replica& replica, TierMover& mover,
                                      StepWaits& waits) const {
  std::vector<double> mine = numbers_of_mine(replica, mover);
  mine.resize(most_numbers_);
  const std::vector<double> all = waits.during([&] { return gathered<double>(world, mine); });

  std::vector<std::vector<double>> chunks(chunks_);
  for (std::size_t worker = 0; worker < pieces_.size(); ++worker) {
    const double* next = all.data() + worker * most_numbers_;
    const bool has_ours =
        sharding_.expert_rank(static_cast<int>(worker)) == sharding_.expert_rank(sharding_.worker);
    for (const Piece& piece : pieces_[worker]) {
      if (has_experts_[piece.block] && !has_ours) {
        next += piece.numbers();
        continue;
      }
      chunks[piece.chunk].insert(chunks[piece.chunk].end(), next, next + piece.numbers());
      next += piece.numbers();
    }
  }
  std::vector<double> sums;
  for (const std::vector<double>& chunk : chunks) sums.push_back(ops::sum_of_runs(chunk));
  return sums;
}

}  // namespace lockstep::parallel
