// What server 0 does besides its slices: everything that workers settle among all of them.
//
// bsp: what workers bring to a step and how it went, from all before any goes on; the norm of all
// gradients from all servers' sums of squares. asp and ssp: who does which share. *Share* i of the
// run is the part of place i % workers in step i / workers + 1; they are handed out in order to
// whoever has nothing to do, so a slow worker does fewer. With ssp a share waits until it lies at
// most `staleness` steps ahead of every one that is under way. What a worker had not finished when
// it died is handed out again. With a share goes what the last one of each worker took. What
// workers did when goes through here to worker 0, since they come to their ends at their own times.
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

  // A message of a worker's control connection. Error(kProtocol) for nonsense.
  void take(int worker, const Header& header, std::span<const std::byte> payload);
  void take_sums(int server, const Header& header, std::span<const std::byte> payload,
                 const ServedLayout& layout);
  // A worker has left or is dead, where the others can go on without it.
  void without(int worker);

  // When worker 0 gets the traces that have come, without those of workers that are late.
  Deadline traces_deadline(std::chrono::nanoseconds timeout) const;
  void end_traces();

  // When the others have waited too long for a worker, and for whom.
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

  // bsp, and the check at the start: one question at a time, the same from all.
  std::optional<Kind> question_;
  std::map<int, std::string> answers_;  // by worker
  Deadline since_ = kNoDeadline;

  // Sums of squares of a round, by server.
  std::uint64_t sums_round_ = 0;
  std::map<int, std::vector<double>> sums_;

  // asp and ssp
  bool started_ = false;
  std::int64_t next_share_ = 0;
  std::int64_t end_ = 0;             // one behind the last share
  std::set<std::int64_t> returned_;  // by the dead, to be handed out again
  struct UnderWay {
    std::int64_t share = 0;
    Deadline since;
  };
  std::map<int, UnderWay> under_way_;     // by worker
  std::vector<Idle> idle_;                // in order
  bool over_ = false;                     // worker 0 does no more shares, hence nobody
  std::vector<StepCost> costs_;           // of each worker's last share
  std::set<int> gone_;                    // workers
  Deadline last_gone_ = Deadline::min();  // since the last of them is
  std::set<int> traced_;                  // workers that have told what they did
  Deadline traces_since_ = kNoDeadline;   // worker 0 waits for the others'
};

}  // namespace lockstep::parallel
