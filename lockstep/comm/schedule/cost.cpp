#include "lockstep/comm/schedule/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/comm/schedule/formula.h"
#include "lockstep/comm/schedule/patterns.h"

namespace lockstep::schedule {
namespace {

// Rounds of ranks that are written down as programs, some 100 bytes each.
constexpr double kMostProgramRounds = 4e6;
// Messages that a pattern may have; on a torus each is followed along its links.
constexpr double kMostMessages = 1e8;
constexpr double kMostRoutes = 4e6;

double slowest_of(const std::vector<CostLine>& lines, double bytes) {
  double slowest = 0;
  for (const CostLine& line : lines) slowest = std::max(slowest, line.at(bytes));
  return slowest;
}

void load_round(const PatternRound& round, const Topology& topology, Load& load) {
  if (!round.among_all) {
    for (const Message& message : round.messages) {
      load.send(message.from, message.to, message.chunks);
      if (message.combines) load.combine(message.to, message.chunks);
    }
    return;
  }
  const Message& each = round.messages.front();
  if (topology.torus.empty()) return load.send_among_all(each.chunks, each.combines);
  for (int from = 0; from < topology.ranks(); ++from) {
    for (int to = 0; to < topology.ranks(); ++to) {
      if (from == to) continue;
      load.send(from, to, each.chunks);
      if (each.combines) load.combine(to, each.chunks);
    }
  }
}

}  // namespace

double Profile::seconds(double bytes) const {
  double total = 0;
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    total += slowest_of(rounds[i], bytes) * (times.empty() ? 1 : times[i]);
  }
  return total;
}

std::vector<double> Profile::round_seconds(double bytes) const {
  std::vector<double> seconds;
  seconds.reserve(rounds.size());
  for (const std::vector<CostLine>& lines : rounds) seconds.push_back(slowest_of(lines, bytes));
  return seconds;
}

Profile profile(const Schedule& schedule, const Topology& topology) {
  if (topology.ranks() != schedule.shape.ranks) {
    fail(ErrorCode::kInvalidArgument,
         "a schedule for {} ranks cannot be priced on a topology of {}", schedule.shape.ranks,
         topology.ranks());
  }
  Profile profile;
  Load load(topology);
  const double share = chunk_share(schedule);
  for (std::size_t round = 0; round < schedule.programs[0].rounds.size(); ++round) {
    load.clear();
    for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
      for (const Step& step : schedule.programs[static_cast<std::size_t>(rank)].rounds[round]) {
        if (step.kind == StepKind::kSend) load.send(rank, step.peer, step.source.count);
        if (step.kind == StepKind::kReceiveReduce || step.kind == StepKind::kReduce) {
          load.combine(rank, step.target.count);
        }
      }
    }
    profile.rounds.push_back(load.lines(share));
  }
  return profile;
}

double cost(const Schedule& schedule, double bytes, const Topology& topology) {
  return profile(schedule, topology).seconds(bytes);
}

std::optional<Profile> profile_of(const Algorithm& algorithm, const Shape& shape,
                                  const Topology& topology, std::string& why) {
  const double ranks = shape.ranks;
  const double messages = ranks * find_formula(algorithm.collective, algorithm.name).rounds(shape);
  const Schedule empty{algorithm.collective, algorithm.name, shape, algorithm.chunks(shape), {}};
  const double share = chunk_share(empty);
  Profile profile;
  Load load(topology);
  const double most = topology.torus.empty() ? kMostMessages : kMostRoutes;
  double walked = 0;  // messages
  const bool has_pattern =
      visit_pattern(algorithm, shape, topology, [&](const PatternRound& round) {
        const bool is_short = !round.among_all || topology.torus.empty();
        walked += is_short ? static_cast<double>(round.messages.size()) : ranks * ranks;
        if (walked > most) return;
        load.clear();
        load_round(round, topology, load);
        profile.rounds.push_back(load.lines(share));
        profile.times.push_back(round.times);
      });
  if (has_pattern && walked <= most) return profile;
  if (has_pattern || messages > kMostProgramRounds) {
    why = fmt::format("has {} messages, too many to follow one by one",
                      format_words(std::max(messages, walked)));
    return std::nullopt;
  }
  return schedule::profile(make_schedule(algorithm, shape), topology);
}

}  // namespace lockstep::schedule
