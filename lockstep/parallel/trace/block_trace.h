// Records the blocks that a replica runs in a trace, and forwards the events.
//
// The time of the next listener (a strategy that waits for parameters, or hands gradients over)
// does not count as the block's, except for gradients that it hands over while the block's backward
// runs. Times are the device's: the host queues a step without a wait, and finish() adds the spans
// when their ends have come.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/ops/timed_ops.h"
#include "lockstep/parallel/trace/device_clock.h"
#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

class BlockTrace : public nn::BlockListener {
 public:
  // All outlive it.
  BlockTrace(Trace& trace, nn::Replica& replica, nn::BlockListener& next);

  // Before the first block of a step, and after its last one. Both wait for the device.
  void start();
  void finish();

  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override;
  void before_backward(std::size_t block) override;
  void finished_up_to(std::size_t block, std::size_t end) override;
  void accumulated(std::size_t block, const nn::FlatRange& range) override;
  void after_backward_input(std::size_t block) override;
  void before_backward_weight(std::size_t block) override;
  void after_backward(std::size_t block) override;

 private:
  struct Span {
    std::string_view kind;
    std::size_t block;
    Moment begin;
    Moment end;
  };

  void begin(std::string_view kind, std::size_t block);
  void end();

  Trace& trace_;
  Ops& ops_;
  nn::BlockListener& next_;
  std::vector<std::string> names_;
  std::optional<DeviceClock> clock_;
  std::vector<Span> spans_;  // of this step; the last may be open
};

// Adds the operations of a step to a trace.
void trace_operations(Trace& trace, const DeviceClock& clock, const std::vector<OpCall>& calls);

}  // namespace lockstep::parallel
