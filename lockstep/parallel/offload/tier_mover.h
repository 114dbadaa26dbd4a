// Copies tensors between the device and other tiers (nn/parameters/tiers.h), on its own thread,
// concurrently with compute, at the times at which the plan has memory for them.
//
//   compute  | forward 0 | forward 1    | forward 2    | ... | backward 2 | backward 1         |
//   mover    | fetch 1   | store kept 0 | store kept 1 | ... | fetch 1    | store gradients 2  |
//            |           | fetch 2      | fetch 3      |     | and kept 1 | fetch 0 and kept 0 |
//
// "Fetch" copies a block's parameters, or its kept activations, to the device; "store" copies
// gradients, or kept activations, from it. A strategy forwards the block events. The mover copies
// only unsharded parameters and gradients; sharded ones are gathered and reduced by the strategy,
// directly from and to their tier. Between a GPU and the host its thread waits for copies on a
// stream of its own. Only the mover's thread accesses the files of activations and
// gradients; other threads ask it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/communication/communication_thread.h"
#include "lockstep/parallel/trace/trace.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::parallel {

class TierMover : public nn::BlockListener {
 public:
  // Tasks are counted from 1; 0: none.
  using Ticket = std::uint64_t;

  // Both must outlive it. Before start(), and if everything is on the device, it does nothing.
  void start(nn::Replica& replica, Trace& trace);

  // Whether it moves whole flat buffers.
  bool moves_parameters() const { return moves_parameters_; }
  bool moves_gradients() const { return moves_gradients_; }
  // Whether it moves anything during a micro-batch.
  bool has_work() const {
    return replica_ != nullptr &&
           (moves_parameters_ || moves_gradients_ || !replica_->plan().absences.empty());
  }

  // Call it when all gradients of the previous micro-batch are stored. With `adds`, backward adds
  // to the flat buffer of gradients, else it starts with zero.
  void begin_micro_batch(bool adds);
  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override;
  void before_backward(std::size_t block) override;
  void after_backward(std::size_t block) override;

  // Waits until the gradients of a block that backward has made are in the flat buffer.
  // Thread-safe.
  void await_gradients(std::size_t block);

  // Queues a copy after everything pushed before. `label` must outlive it, except for its lane.
  // Thread-safe.
  Ticket copy(const Tensor& to, const Tensor& from, TraceLabel label);
  // The same to and from the file of this worker's gradients of a block: all of them, when the
  // event has come, or some from element `first` on.
  Ticket store_gradients(std::size_t block, const Tensor& from, const Event& made = {});
  Ticket fetch_gradients(std::size_t block, std::size_t first, const Tensor& to,
                         const Event& free = {});
  // Reads this worker's parameters of a block from a file, on the calling thread, which must always
  // be the same.
  void read_parameters(std::size_t block, const Tensor& to);
  // The bytes that were read this way.
  io::TierTraffic filed_traffic() const { return reader_ ? reader_->traffic() : io::TierTraffic(); }

  void await(Ticket ticket);
  // Waits for all tasks; for the compute thread.
  void wait() { wait_for(pushed_); }
  void settle() noexcept { thread_.settle(); }

 private:
  Ticket push(TraceLabel label, std::size_t elements, std::function<void()> move);
  // A copy that begins after the event, which is of operations.
  Ticket copy_after(const Event& event, const Tensor& to, const Tensor& from, TraceLabel label);
  void copy_now(const Tensor& to, const Tensor& from);
  void wait_for(Ticket ticket);
  void enter(std::size_t step);
  void fetch_kept(int step, const Event& free);
  void begin_gradients(std::size_t block);
  Ticket fetch_parameters(std::size_t gather, const Event& free);

  nn::Replica* replica_ = nullptr;
  Trace* trace_ = nullptr;
  bool moves_parameters_ = false;
  bool moves_gradients_ = false;
  bool adds_ = false;
  bool trains_ = false;      // from the beginning of a micro-batch to the end of its backward
  bool one_by_one_ = false;  // transfers to and from files are not overlapped

  std::mutex pushing_;
  std::atomic<Ticket> pushed_ = 0;
  std::vector<Ticket> gathers_;               // of the plan
  std::vector<Ticket> left_;                  // absences
  std::vector<Ticket> back_;                  // the same
  std::vector<std::atomic<Ticket>> stored_;   // gradients of each block
  std::vector<std::size_t> first_writers_;    // of each block's gradients
  std::optional<nn::FlatFileReader> reader_;  // of parameters in a file
  std::optional<Stream> stream_;              // of copies between a GPU and the host
  CommunicationThread thread_;                // declared last, to end before what its tasks use
};

}  // namespace lockstep::parallel
