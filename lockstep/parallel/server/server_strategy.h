// The strategy of a worker with parameter servers (parallel/server/parameter_server.h).
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "lockstep/parallel/gradients/tree_sum.h"
#include "lockstep/parallel/server/parameter_server.h"
#include "lockstep/parallel/server/service/slice_window.h"
#include "lockstep/parallel/server/wire/meeting.h"
#include "lockstep/parallel/server/wire/update_request.h"
#include "lockstep/parallel/server/worker/host_mirror.h"
#include "lockstep/parallel/server/worker/worker_link.h"
#include "lockstep/parallel/strategy/step_waits.h"

namespace lockstep::parallel {

// The description of the model for servers.
ServedLayout layout_for(const ParameterServerJob& job, const nn::MemoryPlan& plan);

// The slices of a token embedding that are pushed before backward reaches it; the rows of the
// batch's tokens follow (parallel/server/slices/runs.h).
struct EarlyTable {
  std::size_t first = 0;   // of the slices
  std::size_t end = 0;     // one past the last
  std::size_t after = 0;   // the block whose backward they wait for
  std::size_t offset = 0;  // of the table in the flat buffer
  std::size_t width = 0;   // of its rows
};
// Nothing if there is none, or if it would not pay off.
std::optional<EarlyTable> early_table(const ParameterServerJob& job, const nn::MemoryPlan& plan,
                                      const ServedLayout& layout, int workers);

class ServerStrategy final : public Strategy {
 public:
  using RunServer = void (*)(const ParameterServerJob&, Meeting&, SliceWindow&);

  ServerStrategy(const ParameterServerJob& job, std::unique_ptr<Meeting> meeting,
                 RunServer run_server);
  ~ServerStrategy() override;

  std::string_view name() const override { return "parameter_server"; }
  int worker() const override { return meeting_->map().rank; }
  int workers() const override { return meeting_->map().workers; }
  bool in_lockstep() const override { return is_bsp(); }

  void start(nn::Replica& replica) override;
  std::optional<Share> next(const StepPlan& plan, std::int64_t steps,
                            std::int64_t last_step) override;
  void stop() override;
  StepStart begin_step(const StepStart& mine) override;
  void expect_update(const UpdateRequest& request) override;
  void begin_micro_batch(std::int64_t index, std::int64_t count) override;
  void before_forward(std::size_t block) override;
  void before_backward(std::size_t block) override;
  void finished_up_to(std::size_t block, std::size_t end) override;
  void after_backward(std::size_t block) override;
  UpdateResult update(const UpdateRequest& request) override;
  StepSummary end_step(const StepEnd& mine) override;
  std::string compare_workers(bool whole) override;
  void collect() override;
  std::vector<Residual> residuals() override;
  std::vector<RankTrace> gather_traces() override;
  ServedStates* served_states() override { return &window_; }
  void leave() noexcept override;

 private:
  bool is_bsp() const { return job_.options.consistency == Consistency::kBsp; }
  void send_states();
  std::string compare_hashes();
  std::int64_t offset_of_clock();
  void scale_residual(double loss_scale);
  void await_exposed(std::optional<std::size_t> block);
  void send_request(const UpdateRequest& request, double gradient_scale);
  bool leaves_early() const;
  void push_table();
  void push_rows(std::size_t first, std::size_t end);
  void await_table();
  void push_up_to(std::size_t end);
  // The same beside a GPU, when the gradients have come to the host.
  void push_later(std::size_t first);
  void push_arrived(bool all);
  void await_parameters(std::size_t block);
  // What the servers get and send.
  const nn::States& served() const { return mirror_ ? mirror_->states() : replica_->states(); }
  UpdateResult update_own(const UpdateRequest& request);
  UpdateResult await_norm();

  ParameterServerJob job_;
  std::unique_ptr<Meeting> meeting_;
  SliceWindow window_;
  std::thread server_;                // the colocated server
  std::optional<HostMirror> mirror_;  // beside a GPU
  std::unique_ptr<WorkerLink> link_;
  nn::Replica* replica_ = nullptr;
  ServedLayout layout_;
  std::optional<EarlyTable> table_;
  TreeSum tree_;

  std::uint64_t round_ = 0;    // the last round that was pushed
  double residual_scale_ = 1;  // the loss scale of the residual
  bool has_master_ = false;    // the parameters are collected master copies, not what servers send
  std::vector<StepCost> costs_;  // asp and ssp: the last cost reported by each worker
  // Of this step.
  std::int64_t step_ = 0;
  bool in_step_ = false;  // from its first micro-batch to its update
  std::int64_t micro_batches_ = 0;
  std::int64_t micro_batch_ = 0;
  bool zeroed_ = false;
  bool added_up_ = false;       // the tree sum is in the gradients
  std::size_t next_slice_ = 0;  // the first that is not pushed yet
  std::vector<Runs> owed_;      // of the table's slices, if they were pushed early
  Deadline table_pushed_{};     // the same
  struct Leaving {
    Event arrived;
    std::size_t first = 0;  // slices
    std::size_t end = 0;
  };
  std::deque<Leaving> leaving_;  // to the host, beside a GPU
  std::optional<RoundRequest> requested_;
  StepWaits waits_;
};

}  // namespace lockstep::parallel
