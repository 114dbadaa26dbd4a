// The slices of a server: receives gradients, updates, sends parameters.
//
// bsp: a slice waits until the gradients of all workers for the round have arrived; they are summed
// in a fixed tree, and the slice is updated. If the update needs the global norm, sums of squares
// go to server 0 first, and the server waits for its verdict. asp and ssp: every push is an update.
//
// bsp, if a worker has announced runs of a slice (parallel/server/slices/runs.h): the rest of the
// slice is updated and sent back when all gradients have arrived, and the runs when they have
// arrived; with a norm, everything waits for the runs.
//
// Long work (sums, updates) is done slice by slice in work(); between slices the server handles its
// connections. All messages are checked: Error(kProtocol).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/system/deadline.h"
#include "lockstep/parallel/server/service/slice_window.h"
#include "lockstep/parallel/server/slices/slice_store.h"
#include "lockstep/parallel/server/wire/server_wire.h"
#include "lockstep/parallel/server/wire/update_request.h"

namespace lockstep::parallel {

class SliceService {
 public:
  // `window` shows its states to other threads; nullptr: nobody reads them.
  SliceService(const ServerOptions& options, ServedLayout layout, int server, int workers, Ops& ops,
               ServerWire& wire, SliceWindow* window = nullptr);

  const ServedLayout& layout() const { return layout_; }

  // The memory for the payload of kState, kPush and kRows.
  std::span<std::byte> place(int worker, const Header& header);

  void take_state(const Header& header);
  // The worker has the layout with this hash: it gets all parameters once they have arrived.
  void ready(int worker, const std::string& hash);
  void request(int worker, const Header& header, std::span<const std::byte> payload);
  void push(int worker, const Header& header);
  void owe(int worker, const Header& header, std::span<const std::byte> payload);
  void rows(int worker, const Header& header, std::span<const std::byte> payload);
  void zeros(int worker, const Header& header);
  void pull(int worker, const Header& header);
  void collect(int worker, const Header& header);
  void verdict(const Header& header);

  // That workers have asked for, on average.
  std::uint64_t rounds() const { return all_requests_ / static_cast<std::uint64_t>(workers_); }

  bool has_work() const { return !work_.empty(); }
  void work();

  // bsp: when the current round times out, and which workers' gradients are missing.
  Deadline deadline(std::chrono::nanoseconds timeout) const;
  std::vector<int> missing() const;
  void restart_wait() { since_ = std::chrono::steady_clock::now(); }

 private:
  struct SliceState {
    std::uint64_t version = 0;          // updates; with bsp, rounds
    std::vector<std::uint64_t> pushed;  // by worker: its last round
    std::vector<std::uint64_t> seen;    // asp: by worker: the version it has
    int came = 0;                       // bsp: workers whose gradients of the round have arrived
    bool squared = false;               // bsp, where a norm is needed
    bool queued = false;                // in work_
    std::map<int, Runs> owed;           // bsp: by worker: the announced runs
    std::optional<Runs> apart;          // bsp: all but these are updated
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
  void tell_window(std::uint64_t rounds);
  void go_on();
  void send_parameters(int worker, std::size_t slice, double staleness);
  void send_states(std::size_t slice);
  OutMessage message(Kind kind, std::size_t slice, std::span<const std::byte> payload);

  const ServerOptions& options_;
  ServedLayout layout_;
  int server_;
  int workers_;
  ServerWire& wire_;
  std::shared_ptr<SliceStore> own_store_;
  SliceStore& store_;
  SliceWindow* window_;
  std::vector<SliceState> slices_;  // by number; those of other servers stay empty

  std::size_t states_left_ = 0;               // states that worker 0 has not sent yet
  std::uint64_t all_requests_ = 0;            // for updates
  std::vector<bool> ready_;                   // workers that have asked for all parameters
  std::vector<std::vector<std::byte>> rows_;  // by worker: where they land

  std::set<std::pair<std::uint64_t, std::size_t>> work_;  // by urgency, then slice
  std::uint64_t worked_ = 0;

  // bsp
  std::uint64_t current_ = 1;  // the current round
  std::map<std::uint64_t, Round> rounds_;
  std::size_t updated_ = 0;  // slices of the current round
  std::size_t squared_ = 0;  // the same, where a norm is needed
  bool reported_ = false;    // whether the squares were sent to server 0
  std::map<std::size_t, std::vector<double>> squares_;
  std::optional<double> gradient_scale_;  // by the verdict
  Deadline since_ = kNoDeadline;          // since the first gradients of the round arrived

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
