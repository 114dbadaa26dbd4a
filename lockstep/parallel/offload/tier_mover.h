// Moves what a plan has in other tiers than the device (nn/parameters/tiers.h) to the device and
// back, on a thread of its own beside compute, when the plan has room for it.
//
//   compute  | forward 0 | forward 1    | forward 2    | ... | backward 2 | backward 1         |
//   mover    | fetch 1   | store kept 0 | store kept 1 | ... | fetch 1    | store gradients 2  |
//            |           | fetch 2      | fetch 3      |     | and kept 1 | fetch 0 and kept 0 |
//
// "Fetch" brings a block's parameters, or what it kept, to the device; "store" takes gradients, or
// what a block kept, away. A strategy hands on what it hears of blocks. Of parameters and gradients
// the mover moves flat buffers that are whole; those that are sharded a strategy gathers and
// adds up anyway, from and to wherever they lie. Files of activations and gradients are the mover's
// thread's alone: what others want of them they ask it for.
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

namespace lockstep::parallel {

class TierMover : public nn::BlockListener {
 public:
  // Tasks are counted from 1; 0: none.
  using Ticket = std::uint64_t;

  // Both outlive its work. Until then, and where everything is on the device, it does nothing.
  void start(nn::Replica& replica, Trace& trace);

  // Whole flat buffers.
  bool moves_parameters() const { return moves_parameters_; }
  bool moves_gradients() const { return moves_gradients_; }

  // When all gradients of the micro-batch before are stored. With `adds` backward adds to what the
  // flat buffer of gradients holds, else it begins with zero.
  void begin_micro_batch(bool adds);
  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override;
  void before_backward(std::size_t block) override;
  void after_backward(std::size_t block) override;

  // Until a block's gradients are in their flat buffer, as far as backward has made them. Any
  // thread.
  void await_gradients(std::size_t block);

  // Copies after everything that was pushed before; done when awaited. `label` outlives that, but
  // for its lane. Any thread.
  Ticket copy(const Tensor& to, const Tensor& from, TraceLabel label);
  // The same to and from a file, of this worker's part of a block's gradients: all of it, and some
  // from element `first` on.
  Ticket store_gradients(std::size_t block, const Tensor& from);
  Ticket fetch_gradients(std::size_t block, std::size_t first, const Tensor& to);
  // This worker's part of a block's parameters, from a file, by the calling thread: that is always
  // the same one.
  void read_parameters(std::size_t block, const Tensor& to);
  // What it read so.
  io::TierTraffic filed_traffic() const { return reader_ ? reader_->traffic() : io::TierTraffic(); }

  void await(Ticket ticket);
  // For all, as the thread that computes.
  void wait() { wait_for(pushed_); }
  void settle() noexcept { thread_.settle(); }

 private:
  bool has_work() const {
    return moves_parameters_ || moves_gradients_ || !replica_->plan().absences.empty();
  }
  Ticket push(TraceLabel label, std::size_t elements, std::function<void()> move);
  void wait_for(Ticket ticket);
  void enter(std::size_t step);
  void fetch_kept(int step);
  void begin_gradients(std::size_t block);
  Ticket fetch_parameters(std::size_t gather);

  nn::Replica* replica_ = nullptr;
  Trace* trace_ = nullptr;
  bool moves_parameters_ = false;
  bool moves_gradients_ = false;
  bool adds_ = false;
  bool trains_ = false;      // from the begin of a micro-batch to the end of its backward
  bool one_by_one_ = false;  // what goes to a file or comes from it is waited for

  std::mutex pushing_;
  std::atomic<Ticket> pushed_ = 0;
  std::vector<Ticket> gathers_;               // of the plan
  std::vector<Ticket> left_;                  // absences
  std::vector<Ticket> back_;                  // the same
  std::vector<std::atomic<Ticket>> stored_;   // gradients of each block
  std::vector<std::size_t> first_writers_;    // of each block's gradients
  std::optional<nn::FlatFileReader> reader_;  // of parameters in a file
  CommunicationThread thread_;                // last, to end before what its tasks use
};

}  // namespace lockstep::parallel
