#include "lockstep/parallel/trace/block_trace.h"

namespace lockstep::parallel {

BlockTrace::BlockTrace(Trace& trace, nn::Replica& replica, nn::BlockListener& next)
    : trace_(trace), ops_(replica.ops()), next_(next) {
  for (std::size_t i = 0; i < replica.model().size(); ++i) {
    names_.push_back(replica.model().block(i).name());
  }
}

void BlockTrace::start() {
  spans_.clear();
  clock_.emplace(ops_);
}

void BlockTrace::finish() {
  ops_.synchronize();
  for (const Span& span : spans_) {
    trace_.add({.lane = TraceLane::kCompute,
                .kind = std::string(span.kind),
                .of = names_[span.block],
                .begin = clock_->nanoseconds(span.begin),
                .end = clock_->nanoseconds(span.end),
                .step = trace_.step()});
  }
  spans_.clear();
}

void BlockTrace::begin(std::string_view kind, std::size_t block) {
  Moment now = ops_.moment();
  spans_.push_back({kind, block, now, now});
}

void BlockTrace::end() { spans_.back().end = ops_.moment(); }

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

void BlockTrace::after_backward_input(std::size_t block) {
  end();
  next_.after_backward_input(block);
}

void BlockTrace::before_backward_weight(std::size_t block) {
  next_.before_backward_weight(block);
  begin("weights", block);
}

void BlockTrace::after_backward(std::size_t block) {
  end();
  next_.after_backward(block);
}

void trace_operations(Trace& trace, const DeviceClock& clock, const std::vector<OpCall>& calls) {
  for (const OpCall& call : calls) {
    trace.add({.lane = TraceLane::kOperations,
               .kind = call.operation,
               .of = {},
               .begin = clock.nanoseconds(call.begin),
               .end = clock.nanoseconds(call.end),
               .step = trace.step()});
  }
}

}  // namespace lockstep::parallel
