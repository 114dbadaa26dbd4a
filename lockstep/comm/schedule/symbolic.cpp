#include "lockstep/comm/schedule/symbolic.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::schedule {
namespace {

std::string describe(const Region& region) {
  constexpr std::string_view kSpaces[] = {"input", "output", "scratch"};
  const auto space = kSpaces[static_cast<int>(region.space)];
  if (region.count == 1) return fmt::format("{}[{}]", space, region.first);
  return fmt::format("{}[{}..{}]", space, region.first, region.first + region.count - 1);
}

}  // namespace

std::string describe(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return fmt::format("send {} to rank {}", describe(step.source), step.peer);
    case StepKind::kReceive:
      return fmt::format("receive {} from rank {}", describe(step.target), step.peer);
    case StepKind::kReceiveReduce:
      return fmt::format("reduce {} with what comes from rank {} into {}", describe(step.source),
                         step.peer, describe(step.target));
    case StepKind::kCopy:
      return fmt::format("copy {} to {}", describe(step.source), describe(step.target));
    case StepKind::kReduce:
      return fmt::format("reduce {} into {}", describe(step.source), describe(step.target));
  }
  return "an unknown step";
}

SymbolicRun::SymbolicRun(const Schedule& schedule, Placement placement)
    : schedule_(schedule), in_place_(placement == Placement::kInPlace) {
  const int ranks = schedule.shape.ranks;
  if (std::ssize(schedule.programs) != ranks) {
    fail(ErrorCode::kInvalidArgument, "{} programs were given for {} ranks",
         schedule.programs.size(), ranks);
  }
  rounds_ = static_cast<int>(schedule.programs[0].rounds.size());
  const auto chunks = static_cast<std::size_t>(chunk_numbers(schedule));
  memory_.resize(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    const Program& program = schedule.programs[static_cast<std::size_t>(rank)];
    if (std::ssize(program.rounds) != rounds_) {
      fail(ErrorCode::kInvalidArgument, "rank {} has {} rounds where rank 0 has {}", rank,
           program.rounds.size(), rounds_);
    }
    for (int chunk : program.scratch) {
      if (chunk < 0 || chunk >= static_cast<int>(chunks)) {
        fail(ErrorCode::kInvalidArgument, "rank {} has a scratch slot for chunk {}, of 0 to {}",
             rank, chunk, chunks - 1);
      }
    }
    Memory& memory = memory_[static_cast<std::size_t>(rank)];
    memory.input.resize(chunks);
    memory.output.resize(chunks);
    memory.scratch.resize(program.scratch.size());
    for (int chunk = 0; chunk < static_cast<int>(chunks); ++chunk) {
      if (Cell* cell = find(rank, Space::kInput, chunk)) *cell = {chunk, RankSet(ranks, rank)};
    }
  }
}

const Cell* SymbolicRun::find(int rank, Space space, int index) const {
  return const_cast<SymbolicRun*>(this)->find(rank, space, index);
}

Cell* SymbolicRun::find(int rank, Space space, int index) {
  Memory& memory = memory_[static_cast<std::size_t>(rank)];
  std::vector<Cell>& cells = space == Space::kInput    ? memory.input
                             : space == Space::kOutput ? memory.output
                                                       : memory.scratch;
  if (index < 0 || index >= std::ssize(cells)) return nullptr;
  Cell* cell = &cells[static_cast<std::size_t>(index)];
  if (space == Space::kOutput) return in_output(schedule_, rank, index) ? cell : nullptr;
  if (space == Space::kScratch) return cell;
  if (!in_input(schedule_, rank, index)) return nullptr;
  const bool shared = in_place_ && in_output(schedule_, rank, index);
  return shared ? &memory.output[static_cast<std::size_t>(index)] : cell;
}

int SymbolicRun::declared_chunk(int rank, Space space, int index) const {
  if (space != Space::kScratch) return index;
  return schedule_.programs[static_cast<std::size_t>(rank)]
      .scratch[static_cast<std::size_t>(index)];
}

void SymbolicRun::fault(const Place& place, const std::string& what) const {
  const Step& step =
      schedule_.programs[static_cast<std::size_t>(place.rank)]
          .rounds[static_cast<std::size_t>(place.round)][static_cast<std::size_t>(place.step)];
  fail(ErrorCode::kInvalidArgument, "{} by {}, rank {}, round {}, step {} ({}): {}",
       name(schedule_.collective), schedule_.algorithm, place.rank, place.round, place.step,
       schedule::describe(step), what);
}

std::vector<Cell> SymbolicRun::read(const Place& place, const Region& region) const {
  if (region.count < 1) fault(place, "a region must have at least one chunk");
  const auto one = [&](int i) { return describe(Region{region.space, i, 1}); };
  std::vector<Cell> cells;
  for (int i = region.first; i < region.first + region.count; ++i) {
    const Cell* cell = find(place.rank, region.space, i);
    if (cell == nullptr) fault(place, fmt::format("{} does not exist", one(i)));
    if (!cell->defined()) fault(place, fmt::format("{} was never written", one(i)));
    cells.push_back(*cell);
  }
  return cells;
}

void SymbolicRun::write(const Place& place, const Region& region, const std::vector<Cell>& cells) {
  if (region.space == Space::kInput) fault(place, "it writes to input, which is read-only");
  if (region.count != std::ssize(cells)) {
    fault(place, fmt::format("it holds {} chunks, but {} arrive", region.count, cells.size()));
  }
  for (int i = 0; i < region.count; ++i) {
    const int index = region.first + i;
    const Cell& incoming = cells[static_cast<std::size_t>(i)];
    Cell* cell = find(place.rank, region.space, index);
    if (cell == nullptr)
      fault(place, fmt::format("{} does not exist", describe(Region{region.space, index, 1})));
    const int expected = declared_chunk(place.rank, region.space, index);
    if (!same_size(schedule_, expected, incoming.chunk)) {
      fault(place,
            fmt::format("chunk {} does not fit the place of chunk {}", incoming.chunk, expected));
    }
    *cell = incoming;
  }
}

std::vector<Cell> SymbolicRun::combine(const Place& place, std::vector<Cell> left,
                                       const std::vector<Cell>& right) const {
  if (!reduces(schedule_.collective)) fault(place, "this collective does not combine anything");
  if (left.size() != right.size()) {
    fault(place, fmt::format("{} chunks meet {}", left.size(), right.size()));
  }
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].chunk != right[i].chunk) {
      fault(place, fmt::format("chunk {} is mixed with chunk {}", left[i].chunk, right[i].chunk));
    }
    if (left[i].from.meets(right[i].from)) {
      for (int rank = 0; rank < schedule_.shape.ranks; ++rank) {
        if (left[i].from.has(rank) && right[i].from.has(rank)) {
          fault(place, fmt::format("rank {}'s contribution to chunk {} is counted twice", rank,
                                   left[i].chunk));
        }
      }
    }
    left[i].from.merge(right[i].from);
  }
  return left;
}

const SymbolicRun::Message& SymbolicRun::take_message(const Place& place, const Step& step) {
  const auto found = in_flight_.find({step.peer, place.rank});
  if (found == in_flight_.end()) {
    fault(place, fmt::format("rank {} sends nothing (more) to it in this round", step.peer));
  }
  deliveries_.push_back(
      {step.peer, place.rank, step.kind == StepKind::kReceiveReduce, std::move(found->second)});
  in_flight_.erase(found);
  return deliveries_.back().cells;
}

void SymbolicRun::apply(const Place& place, const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
      return;
    case StepKind::kReceive:
      return write(place, step.target, take_message(place, step));
    case StepKind::kReceiveReduce: {
      const Message& message = take_message(place, step);
      return write(place, step.target, combine(place, read(place, step.source), message));
    }
    case StepKind::kCopy:
      return write(place, step.target, read(place, step.source));
    case StepKind::kReduce:
      return write(place, step.target,
                   combine(place, read(place, step.target), read(place, step.source)));
  }
}

void SymbolicRun::collect_sends(int round) {
  for (int rank = 0; rank < schedule_.shape.ranks; ++rank) {
    const Round& steps =
        schedule_.programs[static_cast<std::size_t>(rank)].rounds[static_cast<std::size_t>(round)];
    for (int i = 0; i < std::ssize(steps); ++i) {
      const Step& step = steps[static_cast<std::size_t>(i)];
      const Place place{rank, round, i};
      const bool is_local = step.kind == StepKind::kCopy || step.kind == StepKind::kReduce;
      if (!is_local && (step.peer < 0 || step.peer >= schedule_.shape.ranks || step.peer == rank)) {
        fault(place, fmt::format("rank {} is not a peer of rank {}", step.peer, rank));
      }
      if (step.kind != StepKind::kSend) continue;
      if (!in_flight_.try_emplace({rank, step.peer}, read(place, step.source)).second) {
        fault(place, fmt::format("a second message to rank {} in one round", step.peer));
      }
    }
  }
}

void SymbolicRun::run_round(int round) {
  deliveries_.clear();
  collect_sends(round);
  for (int rank = 0; rank < schedule_.shape.ranks; ++rank) {
    const Round& steps =
        schedule_.programs[static_cast<std::size_t>(rank)].rounds[static_cast<std::size_t>(round)];
    for (int i = 0; i < std::ssize(steps); ++i) {
      apply({rank, round, i}, steps[static_cast<std::size_t>(i)]);
    }
  }
  if (in_flight_.empty()) return;
  const auto [from, to] = in_flight_.begin()->first;
  const Round& steps =
      schedule_.programs[static_cast<std::size_t>(from)].rounds[static_cast<std::size_t>(round)];
  for (int i = 0; i < std::ssize(steps); ++i) {
    const Step& step = steps[static_cast<std::size_t>(i)];
    if (step.kind == StepKind::kSend && step.peer == to) {
      fault({from, round, i}, fmt::format("rank {} does not receive it in this round", to));
    }
  }
}

void SymbolicRun::check_result() const {
  const int ranks = schedule_.shape.ranks;
  const int chunks = chunk_numbers(schedule_);
  for (int rank = 0; rank < ranks; ++rank) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const Cell* cell = find(rank, Space::kOutput, chunk);
      if (cell == nullptr) continue;
      std::string found;
      if (!cell->defined()) {
        found = "was never written";
      } else if (cell->chunk != chunk) {
        found = fmt::format("is chunk {}", cell->chunk);
      } else if (reduces(schedule_.collective) && cell->from != RankSet::all(ranks)) {
        std::vector<int> missing;
        for (int other = 0; other < ranks; ++other) {
          if (!cell->from.has(other)) missing.push_back(other);
        }
        found = fmt::format("lacks the contribution of rank {}", fmt::join(missing, ", "));
      }
      if (!found.empty()) {
        fail(ErrorCode::kInvalidArgument, "{} by {}: at the end, output[{}] of rank {} {}",
             name(schedule_.collective), schedule_.algorithm, chunk, rank, found);
      }
    }
  }
}

const Cell& SymbolicRun::best(int rank, int chunk) const {
  static const Cell kNothing;
  const Cell* best = &kNothing;
  const auto consider = [&](const Cell* cell) {
    if (cell != nullptr && cell->chunk == chunk && cell->from.count() > best->from.count()) {
      best = cell;
    }
  };
  consider(find(rank, Space::kOutput, chunk));
  consider(find(rank, Space::kInput, chunk));
  for (const Cell& cell : memory_[static_cast<std::size_t>(rank)].scratch) consider(&cell);
  return *best;
}

}  // namespace lockstep::schedule
