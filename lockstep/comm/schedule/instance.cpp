#include "lockstep/comm/schedule/instance.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::schedule {
namespace {

bool has_blocks(Collective c) {
  return c == Collective::kScatter || c == Collective::kGather || c == Collective::kAllGather ||
         c == Collective::kReduceScatter;
}

}  // namespace

void check_shape(const Shape& shape) {
  if (shape.ranks < 1) {
    fail(ErrorCode::kInvalidArgument, "a group needs at least 1 rank, not {}", shape.ranks);
  }
  if (shape.root < 0 || shape.root >= shape.ranks) {
    fail(ErrorCode::kInvalidArgument, "root {} is not one of the ranks 0 to {}", shape.root,
         shape.ranks - 1);
  }
  if (shape.segments < 0) {
    fail(ErrorCode::kInvalidArgument, "a vector cannot be cut into {} segments", shape.segments);
  }
  if (!shape.machines.empty() && std::ssize(shape.machines) != shape.ranks) {
    fail(ErrorCode::kInvalidArgument, "the nodes of {} ranks were given for {} ranks",
         shape.machines.size(), shape.ranks);
  }
}

Schedule make_schedule(const Algorithm& algorithm, const Shape& shape) {
  check_shape(shape);
  if (const auto reason = algorithm.refuses(shape)) {
    fail(ErrorCode::kUnsupported, "{} by {}: {}", name(algorithm.collective), algorithm.name,
         *reason);
  }
  Schedule schedule{algorithm.collective, algorithm.name, shape, algorithm.chunks(shape), {}};
  schedule.programs.reserve(static_cast<std::size_t>(shape.ranks));
  for (int rank = 0; rank < shape.ranks; ++rank) {
    schedule.programs.push_back(algorithm.program(shape, rank));
  }
  return schedule;
}

int chunk_numbers(const Schedule& schedule) {
  const int ranks = schedule.shape.ranks;
  if (schedule.collective == Collective::kAllToAll) return ranks * ranks;
  return has_blocks(schedule.collective) ? ranks * schedule.chunks : schedule.chunks;
}

double chunk_share(const Schedule& schedule) {
  if (schedule.collective == Collective::kAllToAll) return 1.0 / schedule.shape.ranks;
  return 1.0 / chunk_numbers(schedule);
}

bool in_input(const Schedule& schedule, int rank, int chunk) {
  const bool is_root = rank == schedule.shape.root;
  switch (schedule.collective) {
    case Collective::kBroadcast:
    case Collective::kScatter:
      return is_root;
    case Collective::kGather:
    case Collective::kAllGather:
      return chunk / schedule.chunks == rank;
    case Collective::kAllToAll:
      return chunk / schedule.shape.ranks == rank;
    default:
      return true;
  }
}

bool in_output(const Schedule& schedule, int rank, int chunk) {
  const bool is_root = rank == schedule.shape.root;
  switch (schedule.collective) {
    case Collective::kReduce:
    case Collective::kGather:
      return is_root;
    case Collective::kScatter:
    case Collective::kReduceScatter:
      return chunk / schedule.chunks == rank;
    case Collective::kAllToAll:
      return chunk % schedule.shape.ranks == rank;
    default:
      return true;
  }
}

bool same_size(const Schedule& schedule, int a, int b) {
  if (schedule.collective == Collective::kReduceScatter) {
    return a % schedule.chunks == b % schedule.chunks;
  }
  return a == b;
}

int communication_rounds(const Schedule& schedule) {
  std::vector<bool> sends;
  for (const Program& program : schedule.programs) {
    if (sends.size() < program.rounds.size()) sends.resize(program.rounds.size());
    for (std::size_t round = 0; round < program.rounds.size(); ++round) {
      for (const Step& step : program.rounds[round]) {
        if (step.kind == StepKind::kSend) sends[round] = true;
      }
    }
  }
  return static_cast<int>(std::count(sends.begin(), sends.end(), true));
}

}  // namespace lockstep::schedule
