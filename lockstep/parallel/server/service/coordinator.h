// The coordinator, part of server 0: everything that involves all workers.
//
// bsp: collects the start and the end of a step from all workers before any continues, and the
// gradient norm from all servers' sums of squares. asp and ssp: assigns shares. *Share* i of the
// run is the part with index i % workers of step i / workers + 1; shares are assigned in order to
// idle workers, so a slow worker does fewer. The first share is worker 0's: it reports the run, and
// a run that the others could finish before it begins would have nothing to report. With ssp a
// share waits until it is at most `staleness` steps ahead of every running one. The unfinished
// share of a dead worker is assigned again. A share carries the last costs of all workers. Traces
// of workers also pass through here to worker 0, because workers end at different times.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/system/deadline.h"
#include "lockstep/parallel/server/slices/served_layout.h"
#include "lockstep/parallel/server/wire/server_wire.h"
#include "lockstep/parallel/strategy/server_options.h"
#include "lockstep/parallel/strategy/strategy.h"

namespace lockstep::parallel {

class Coordinator {
 public:
  Coordinator(const ServerOptions& options, int workers, ServerWire& wire);

  // Handles a message of a worker's control connection. Throws Error(kProtocol) for an invalid one.
  void take(int worker, const Header& header, std::span<const std::byte> payload);
  void take_sums(int server, const Header& header, std::span<const std::byte> payload,
                 const ServedLayout& layout);
  // A worker has left or died, and the others continue without it.
  void without(int worker);

  // When worker 0 gets the traces that have arrived, without those of late workers.
  Deadline traces_deadline(std::chrono::nanoseconds timeout) const;
  void end_traces();

  // When the wait for a worker times out, and which workers are missing.
  Deadline deadline(std::chrono::nanoseconds timeout) const;
  std::vector<int> missing() const;
  bool is_waiting() const { return since_ != kNoDeadline; }

 private:
  void gather(int worker, const Header& header, std::span<const std::byte> payload);
  void answer(Kind kind);
  void compare_hashes();
  void add_up_starts();
  void summarize();
  void ticket(int worker, std::span<const std::byte> payload);
  void finish_share(int worker, std::span<const std::byte> payload);
  void hand_out();
  void stop(int worker);
  Deadline alone_since() const;
  void tell_time(int worker);
  void take_trace(int worker, std::span<const std::byte> payload);
  bool lacks_traces() const;
  void tell_all(Kind kind, const std::string& payload);

  const ServerOptions& options_;
  int workers_;
  ServerWire& wire_;

  // A worker that waits for a share.
  struct Idle {
    int worker = 0;
    Deadline since;
  };

  // bsp, and the check at the start: one question at a time, the same from all workers.
  std::optional<Kind> question_;
  std::map<int, std::string> answers_;  // by worker
  Deadline since_ = kNoDeadline;

  // Sums of squares of a round, by server.
  std::uint64_t sums_round_ = 0;
  std::map<int, std::vector<double>> sums_;

  // asp and ssp
  bool started_ = false;       // a worker has asked for a share
  bool leader_began_ = false;  // worker 0 has
  std::int64_t next_share_ = 0;
  std::int64_t end_ = 0;             // one past the last share
  std::set<std::int64_t> returned_;  // shares of dead workers, to be assigned again
  struct UnderWay {
    std::int64_t share = 0;
    Deadline since;
  };
  std::map<int, UnderWay> under_way_;     // by worker
  std::vector<Idle> idle_;                // in order
  bool over_ = false;                     // worker 0 has stopped, so no more shares are assigned
  std::vector<StepCost> costs_;           // of each worker's last share
  std::set<int> gone_;                    // workers
  Deadline last_gone_ = Deadline::min();  // when the last of them was lost
  std::set<int> traced_;                  // workers that have sent their trace
  Deadline traces_since_ = kNoDeadline;   // since worker 0 waits for the traces
};

}  // namespace lockstep::parallel
