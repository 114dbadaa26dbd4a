// A worker's connections to all servers: a thread that sends and receives while the worker
// computes.
//
// A slice is *out* from when it is pushed until the server has sent it back, updated. Until then
// its gradients and parameters belong to the link: gradients are sent in place, or encoded just
// before they are sent (parallel/server/wire/slice_codec.h), and parameters are received in place.
// Gradients with announced runs (parallel/server/slices/runs.h) belong to the worker again as soon
// as a server has received them.
//
// All methods are for the worker's thread. If a server is lost, or ends the run, every wait throws
// the error with the rank at fault.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/server/slices/runs.h"
#include "lockstep/parallel/server/slices/served_layout.h"
#include "lockstep/parallel/server/slices/slices_out.h"
#include "lockstep/parallel/server/wire/connection_loop.h"
#include "lockstep/parallel/server/wire/meeting.h"
#include "lockstep/parallel/server/wire/slice_codec.h"
#include "lockstep/parallel/server/worker/push_queue.h"
#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

class WorkerLink final : public ConnectionLoop::Receiver {
 public:
  WorkerLink(const ServerOptions& options, const JobMap& map, WorkerConnections sockets,
             std::chrono::nanoseconds timeout, const std::optional<LinkEmulation>& link);
  // Sends goodbyes, with the error, if any.
  ~WorkerLink() override;
  WorkerLink(const WorkerLink&) = delete;
  WorkerLink& operator=(const WorkerLink&) = delete;

  // Call it once, before anything is out. The memory of `states` and the trace must outlive the
  // link. The trace gets a span for every slice that returns.
  void attach(const ServedLayout& layout, const nn::States& states, std::size_t blocks,
              Trace& trace);

  // To a server's data connection; to server 0's control connection.
  void post(int server, OutMessage message);
  void ask(OutMessage question);
  // Waits for the answer to a question: its payload, or for kNorm the number.
  std::string answer(Kind kind);

  // Marks all slices as out; the servers send them.
  void expect_all();
  // Pushes the slices from `first` to before `end`, which are final and not out, for a round in
  // that step. With kFifo the round is pulled when servers have received all its slices.
  void push(std::size_t first, std::size_t end, std::uint64_t round, std::int64_t step);
  // Announces, before a slice is pushed, the runs of it that will be sent again. / Sends them,
  // after the slice was received (parallel/server/slices/runs.h).
  void owe(std::size_t slice, const Runs& runs, std::uint64_t round);
  void push_rows(std::size_t slice, const Runs& runs, std::uint64_t round);
  // Whether servers have received all pushed slices from `first` to before `end`, so that their
  // gradients may change. / Waits for that. A late server is reported before the others, which wait
  // for this worker's runs, time out.
  bool are_taken(std::size_t first, std::size_t end);
  void await_taken(std::size_t first, std::size_t end, Deadline pushed);
  // Pushes zero gradients of all slices for a round.
  void push_zeros(std::uint64_t round);
  // Whether the slices of a block, or all, are back. / Waits for them.
  bool is_back(std::optional<std::size_t> block);
  void await(std::optional<std::size_t> block);
  void await_all() { await(std::nullopt); }
  // Fills `states` with the servers' states of that round. All slices must be back.
  void collect(std::uint64_t round);
  // The residual and the velocity of compression, in the order of the flat buffer. / Rounds the
  // parameters as servers would send them. All slices must be back.
  std::span<float> residual() const { return codec_->residual(); }
  std::span<float> velocity() const { return codec_->velocity(); }
  void round_parameters();

  // Sets the error of the goodbye, unless there is one.
  void blame(const Error& error);

  struct Cost {
    double seconds = 0;       // during which slices were out
    std::uint64_t bytes = 0;  // sent and received by this worker
    double staleness = 0;     // mean over the slices that came back
  };
  // Since the last call.
  Cost take_cost();

 private:
  using Lock = std::unique_lock<std::mutex>;

  std::span<std::byte> place(int connection, const Header& header) override;
  void take(int connection, const Header& header, std::span<std::byte> payload) override;
  void lost(int connection) override;
  void landed(int connection, const Header& header);
  void leaves(std::size_t slice);
  void is_back(std::size_t slice);

  void run();
  void send_posted();
  bool has_ended();
  bool push_next();
  Deadline show_life();
  void leave();
  void fail_with(const Error& error);
  template <class Condition>
  void wait(Lock& lock, std::string_view for_what, Condition condition);
  [[noreturn]] void fail_late(std::string_view for_what, const std::vector<bool>& late);
  void ask_for_states(int server);
  void await_states(Lock& lock, std::size_t before);
  std::size_t pushed_bytes(std::size_t slice) const;
  const Slice& checked(int connection, const Header& header) const;
  Tensor state_buffer(StateKind kind) const;
  static Tensor part(const Tensor& buffer, const Slice& slice);
  Tensor parameters(std::size_t slice) const;
  Priority priority_of(std::size_t slice) const;
  bool none_on_way(std::size_t first, std::size_t end) const;
  void take_rows(int connection, const Header& header, std::span<const std::byte> payload);

  const ServerOptions& options_;
  const JobMap& map_;
  std::chrono::nanoseconds timeout_;
  ServedLayout layout_;
  nn::States states_;
  std::unique_ptr<SliceCodec> codec_;  // used by the thread while slices are out
  ConnectionLoop loop_;                // used by the thread, except for wake()
  int control_ = -1;                   // its connection; those of data are the numbers of servers
  std::vector<std::vector<std::byte>> small_;  // payloads by connection
  Deadline shows_life_;                        // when to send the next heartbeat

  std::mutex mutex_;
  std::condition_variable changed_;
  // With the mutex:
  std::vector<std::pair<int, OutMessage>> posted_;
  PushQueue queue_;
  std::uint64_t pushed_ = 0;  // slices since the start
  std::uint64_t round_ = 0;   // of the slices that are out
  std::int64_t step_ = 0;     // the same
  std::size_t untaken_ = 0;   // slices of the round that servers have not received
  SlicesOut out_;
  std::vector<bool> on_way_;  // by slice: pushed and not received
  std::vector<bool> early_;   // by slice: back except for rows
  Trace* trace_ = nullptr;
  std::int64_t traced_ = 0;  // until then, where slices are out
  std::multimap<Kind, std::string> answers_;
  std::vector<std::vector<std::size_t>> to_collect_;  // slices to request, by server
  std::size_t states_to_come_ = 0;
  std::optional<Error> fault_;
  bool closing_ = false;
  std::uint64_t bytes_sent_ = 0;
  std::uint64_t bytes_received_ = 0;
  std::uint64_t bytes_told_ = 0;  // of both
  double staleness_ = 0;
  std::size_t came_back_ = 0;

  std::thread thread_;
};

}  // namespace lockstep::parallel
