// Records the blocks that a replica runs in a trace, and forwards the events.
//
// The time of the next listener (a strategy that waits for parameters or reduces gradients) does
// not count as the block's, except for calls during a block's backward.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/nn/block_listener.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/trace/trace.h"

namespace lockstep::parallel {

class BlockTrace : public nn::BlockListener {
 public:
  // All arguments must outlive it. Synchronizes after every block, so that its span is its real
  // time.
  BlockTrace(Trace& trace, nn::Replica& replica, nn::BlockListener& next);

  void before_forward(std::size_t block) override;
  void after_forward(std::size_t block) override;
  void before_backward(std::size_t block) override;
  void finished_up_to(std::size_t block, std::size_t end) override;
  void accumulated(std::size_t block, const nn::FlatRange& range) override;
  void after_backward(std::size_t block) override;

 private:
  void begin(std::string_view kind, std::size_t block);
  void end();

  Trace& trace_;
  Ops& ops_;
  nn::BlockListener& next_;
  std::vector<std::string> names_;
  std::optional<TraceScope> scope_;
};

}  // namespace lockstep::parallel
