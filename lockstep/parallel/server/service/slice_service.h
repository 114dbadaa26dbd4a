// What a server does with its slices: takes gradients, updates, hands parameters out.
//
// bsp. A slice waits until all workers' gradients of the round have come; they are added up in a
// fixed tree, and the slice is updated. Where the update needs the norm of all gradients, sums of
// squares go to server 0 first, and its verdict is waited for. asp and ssp: every push is an update
// at once.
//
// bsp, where a worker owes runs of a slice (parallel/server/slices/runs.h): the slice is updated
// but for these and sent back when all workers' gradients are here, and the runs when they have
// come; with a norm all of it waits for them.
//
// Long work (adding up, updating) is done slice by slice in work(), between which the server
// looks after its connections. Everything a peer says is checked: Error(kProtocol).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/system/deadline.h"
#include "lockstep/parallel/server/slices/slice_store.h"
#include "lockstep/parallel/server/wire/server_wire.h"
#include "lockstep/parallel/server/wire/update_request.h"

namespace lockstep::parallel {

class SliceService {
 public:
  SliceService(const ServerOptions& options, ServedLayout layout, int server, int workers, Ops& ops,
               ServerWire& wire);

  const ServedLayout& layout() const { return layout_; }

  // Where the payload of kState, kPush and kRows goes.
  std::span<std::byte> place(int worker, const Header& header);

  void take_state(const Header& header);
  // The worker's layout is this one, by its hash: it gets all parameters once they are here.
  void ready(int worker, const std::string& hash);
  void request(int worker, const Header& header, std::span<const std::byte> payload);
  void push(int worker, const Header& header);
  void owe(int worker, const Header& header, std::span<const std::byte> payload);
  void rows(int worker, const Header& header, std::span<const std::byte> payload);
  void zeros(int worker, const Header& header);
  void pull(int worker, const Header& header);
  void collect(int worker, const Header& header);
  void verdict(const Header& header);

  bool has_work() const { return !work_.empty(); }
  void work();

  // bsp: when the round under way has lasted too long, and whose gradients are missing.
  Deadline deadline(std::chrono::nanoseconds timeout) const;
  std::vector<int> missing() const;
  void restart_wait() { since_ = std::chrono::steady_clock::now(); }

 private:
  struct SliceState {
    std::uint64_t version = 0;          // updates; with bsp, rounds
    std::vector<std::uint64_t> pushed;  // by worker: its last round
    std::vector<std::uint64_t> seen;    // asp: by worker: the version it has
    int came = 0;                       // bsp: workers whose gradients of the round are here
    bool squared = false;               // bsp, where a norm is needed
    bool queued = false;                // in work_
    std::map<int, Runs> owed;           // bsp: by worker: what comes again
    std::optional<Runs> apart;          // bsp: updated but for these
  };
  struct Round {
    RoundRequest request;
    std::vector<bool> requested;  // by worker
    int requests = 0;
  };

  static std::size_t index(int number) { return static_cast<std::size_t>(number); }
  bool adds_up() const { return options_.consistency == Consistency::kBsp; }
  SliceState& state_of(const Header& header);
  Round& round(std::uint64_t number);
  Priority priority_of(std::size_t slice) const;
  void check_push(int worker, const Header& header, const SliceState& state) const;
  Tensor landed(int worker, const Header& header);
  void gradients_came(std::size_t slice);
  void schedule(std::size_t slice);
  void report_squares();
  void update_round(std::size_t slice);
  void send_rows(std::size_t slice);
  void finish_slice(std::size_t slice, bool changed);
  void finish_round();
  void go_on();
  void send_parameters(int worker, std::size_t slice, double staleness);
  void send_states(std::size_t slice);
  OutMessage message(Kind kind, std::size_t slice, std::span<const std::byte> payload);

  const ServerOptions& options_;
  ServedLayout layout_;
  int server_;
  int workers_;
  ServerWire& wire_;
  SliceStore store_;
  std::vector<SliceState> slices_;  // by number among all; those of others stay empty

  std::size_t states_left_ = 0;               // that worker 0 has not sent yet
  std::vector<bool> ready_;                   // workers that have asked for all parameters
  std::vector<std::vector<std::byte>> rows_;  // by worker: where they land

  std::set<std::pair<std::uint64_t, std::size_t>> work_;  // by urgency, then slice
  std::uint64_t worked_ = 0;

  // bsp
  std::uint64_t current_ = 1;  // the round under way
  std::map<std::uint64_t, Round> rounds_;
  std::size_t updated_ = 0;  // slices of the round under way
  std::size_t squared_ = 0;  // the same, where a norm is needed
  bool reported_ = false;    // their squares, to server 0
  std::map<std::size_t, std::vector<double>> squares_;
  std::optional<double> gradient_scale_;  // by the verdict
  Deadline since_ = kNoDeadline;          // the first of the round's gradients came

  // asp and ssp
  // By worker and round. That of its next round may come while slices of the last one are on their
  // way; two rounds on, they have come.
  std::vector<std::map<std::uint64_t, RoundRequest>> requests_;
  std::optional<std::int64_t> updates_before_;

  // fifo: what is withheld until the worker has pushed everything
  struct Withheld {
    std::size_t slice;
    double staleness;
  };
  std::vector<std::uint64_t> pulls_;  // by worker: the round it may have
  std::vector<std::deque<Withheld>> withheld_;
  std::map<std::size_t, std::uint64_t> collects_;  // slices whose states wait for a round
};

}  // namespace lockstep::parallel
