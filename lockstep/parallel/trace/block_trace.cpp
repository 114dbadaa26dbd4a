#include "lockstep/parallel/trace/block_trace.h"

namespace lockstep::parallel {

BlockTrace::BlockTrace(Trace& trace, nn::Replica& replica, nn::BlockListener& next)
    : trace_(trace), ops_(replica.ops()), next_(next) {
  for (std::size_t i = 0; i < replica.model().size(); ++i) {
    names_.push_back(replica.model().block(i).name());
  }
}

void BlockTrace::begin(std::string_view kind, std::size_t block) {
  scope_.emplace(trace_,
                 TraceLabel{.lane = TraceLane::kCompute, .kind = kind, .of = names_[block]});
}

void BlockTrace::end() {
  ops_.synchronize();
  scope_.reset();
}

void BlockTrace::before_forward(std::size_t block) {
  next_.before_forward(block);
  begin("forward", block);
}

void BlockTrace::after_forward(std::size_t block) {
  end();
  next_.after_forward(block);
}

void BlockTrace::before_backward(std::size_t block) {
  next_.before_backward(block);
  begin("backward", block);
}

void BlockTrace::finished_up_to(std::size_t block, std::size_t end) {
  next_.finished_up_to(block, end);
}

void BlockTrace::accumulated(std::size_t block, const nn::FlatRange& range) {
  next_.accumulated(block, range);
}

void BlockTrace::after_backward(std::size_t block) {
  end();
  next_.after_backward(block);
}

}  // namespace lockstep::parallel
