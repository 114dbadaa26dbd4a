#include "lockstep/comm/schedule/verify.h"

#include <algorithm>

namespace lockstep::schedule {

double Traffic::sent_by(int rank) const {
  return static_cast<double>(ranks[static_cast<std::size_t>(rank)].chunks_sent) * chunk_share;
}

double Traffic::sent_by_busiest() const {
  double most = 0;
  for (int rank = 0; rank < std::ssize(ranks); ++rank) most = std::max(most, sent_by(rank));
  return most;
}

double Traffic::sent_in_all() const {
  long long chunks = 0;
  for (const RankTraffic& rank : ranks) chunks += rank.chunks_sent;
  return static_cast<double>(chunks) * chunk_share;
}

Traffic count_traffic(const Schedule& schedule) {
  Traffic traffic;
  traffic.rounds = communication_rounds(schedule);
  traffic.chunk_share = chunk_share(schedule);
  for (const Program& program : schedule.programs) {
    RankTraffic& rank = traffic.ranks.emplace_back();
    for (const Round& round : program.rounds) {
      for (const Step& step : round) {
        if (step.kind == StepKind::kSend) {
          ++rank.messages_sent;
          rank.chunks_sent += step.source.count;
        } else if (step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce) {
          ++rank.messages_received;
          rank.chunks_received += step.target.count;
        }
      }
    }
  }
  return traffic;
}

Traffic verify(const Schedule& schedule, Placement placement) {
  SymbolicRun run(schedule, placement);
  for (int round = 0; round < run.rounds(); ++round) run.run_round(round);
  run.check_result();
  return count_traffic(schedule);
}

}  // namespace lockstep::schedule
