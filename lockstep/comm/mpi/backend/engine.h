// Drives the operations of one rank in one group. All methods lock mpi::mutex() themselves.
#pragma once

#include <list>
#include <memory>

#include "lockstep/comm/mpi/backend/control.h"
#include "lockstep/comm/mpi/backend/operation.h"
#include "lockstep/comm/mpi/backend/recorder.h"
#include "lockstep/comm/mpi/mpi.h"

namespace lockstep::mpi {

class Engine {
 public:
  // Takes ownership of `base`, which nothing else uses. Called by all its ranks.
  Engine(MPI_Comm base, const MpiOptions& options);
  // Finishes running operations and frees everything; after a failure of the group it frees
  // nothing.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const MpiOptions& options() const { return options_; }
  MPI_Comm base() const { return base_; }

  // Throw the group's error once it has failed.
  std::shared_ptr<Operation> start(const Call& call);
  std::shared_ptr<Operation> start_special(Special special, std::size_t bytes);
  std::shared_ptr<Operation> start_wait_signal(int peer);
  void signal(int peer);

  // Advances all operations; waits until `operation` has ended or until `until`. Returns whether it
  // ended.
  bool wait_until(const Operation& operation, Clock::time_point until);
  std::optional<Error> error(const Operation& operation);

  // Ends every operation of every rank with `error`.
  void abort(const Error& error);

 private:
  // Which ranks know of a failure: all of them, this one first, or another one that sent it.
  enum class Known { kToAll, kHere, kThere };

  struct RollCall {
    std::shared_ptr<Operation> operation;
    Clock::time_point until;
    std::vector<bool> present;
  };

  void drain();
  std::shared_ptr<Operation> add(const Call& call, int peer, std::string text);
  void begin_check(Operation& operation);
  // These never throw: an error fails the group.
  void advance();
  void advance_all();
  void advance_one(Operation& operation);
  bool may_move(const Operation& operation) const;
  void end_check(Operation& operation);
  void move(Operation& operation);
  void hear_control();
  void watch_deadlines();
  void end_roll_call();
  Error timeout_of(const Operation& operation, std::vector<int> missing) const;
  void fail_all(const Error& error, Known known);
  void dump(const Error& error) const;
  bool idle() const { return operations_.empty(); }
  Group group(MPI_Comm comm) const { return {comm, rank_, size_, options_.largest_piece}; }

  MpiOptions options_;
  MPI_Comm base_;
  MPI_Comm check_comm_ = MPI_COMM_NULL;
  MPI_Comm data_comm_ = MPI_COMM_NULL;
  MPI_Comm point_comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  int world_rank_ = 0;
  std::uint64_t started_ = 0;                         // collectives
  std::list<std::shared_ptr<Operation>> operations_;  // in the order of their calls
  std::unique_ptr<ControlChannel> control_;
  Recorder recorder_;
  std::optional<RollCall> roll_call_;
  std::optional<Error> failure_;
  bool abandoned_ = false;  // MPI may wait for this group forever
};

// MPI keeps using the memory of unfinished operations.
void keep_for_good(std::shared_ptr<Operation> operation);

}  // namespace lockstep::mpi
