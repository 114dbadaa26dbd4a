#include "lockstep/parallel/server/wire/step_messages.h"

#include "lockstep/parallel/server/slices/message.h"

namespace lockstep::parallel {

std::string encode(const StepStart& start) {
  return Packer()
      .add(start.targets)
      .add(start.tokens)
      .add(static_cast<std::uint8_t>(start.stops ? 1 : 0))
      .take();
}

StepStart decode_start(std::span<const std::byte> bytes) {
  Unpacker unpacker(bytes);
  StepStart start;
  start.targets = unpacker.take<std::int64_t>();
  start.tokens = unpacker.take<std::int64_t>();
  start.stops = unpacker.take<std::uint8_t>() != 0;
  unpacker.finish();
  constexpr std::int64_t kMost = std::int64_t{1} << 48;  // so that sums over workers stay in range
  if (start.targets < 0 || start.tokens < 0 || start.targets > kMost || start.tokens > kMost) {
    fail(ErrorCode::kProtocol, "a worker reports {} targets in {} tokens of a step", start.targets,
         start.tokens);
  }
  return start;
}

std::string encode(const StepEnd& end) {
  return Packer().add(end.cost).list(std::span<const double>(end.losses)).take();
}

StepEnd decode_end(std::span<const std::byte> bytes) {
  Unpacker unpacker(bytes);
  StepEnd end;
  end.cost = unpacker.take<StepCost>();
  end.losses = unpacker.list<double>();
  unpacker.finish();
  return end;
}

std::string encode(const StepSummary& summary) {
  return Packer().add(summary.loss).list(std::span<const StepCost>(summary.costs)).take();
}

StepSummary decode_summary(std::span<const std::byte> bytes) {
  Unpacker unpacker(bytes);
  StepSummary summary;
  summary.loss = unpacker.take<double>();
  summary.costs = unpacker.list<StepCost>();
  unpacker.finish();
  return summary;
}

std::string encode(const StepCost& cost) { return Packer().add(cost).take(); }

StepCost decode_cost(std::span<const std::byte> bytes) {
  Unpacker unpacker(bytes);
  const auto cost = unpacker.take<StepCost>();
  unpacker.finish();
  return cost;
}

std::string encode(const RankTrace& trace) {
  Packer packer;
  packer.add(trace.rank).add(static_cast<std::uint64_t>(trace.spans.size()));
  for (const TraceSpan& span : trace.spans) {
    packer.add(span.lane).text(span.kind).text(span.of).add(span.begin).add(span.end);
    packer.add(span.step).add(span.bytes).add(span.elements);
  }
  return packer.take();
}

RankTrace decode_trace(std::span<const std::byte> bytes) {
  Unpacker unpacker(bytes);
  RankTrace trace{.rank = unpacker.take<int>(), .spans = {}};
  for (auto left = unpacker.take<std::uint64_t>(); left > 0; --left) {
    TraceSpan span;
    span.lane = unpacker.take<TraceLane>();
    span.kind = unpacker.text();
    span.of = unpacker.text();
    span.begin = unpacker.take<std::int64_t>();
    span.end = unpacker.take<std::int64_t>();
    span.step = unpacker.take<std::int64_t>();
    span.bytes = unpacker.take<std::uint64_t>();
    span.elements = unpacker.take<std::uint64_t>();
    if (static_cast<std::size_t>(span.lane) >= kTraceLanes) {
      fail(ErrorCode::kProtocol, "the trace of worker {} has an unknown lane {}", trace.rank,
           static_cast<int>(span.lane));
    }
    trace.spans.push_back(std::move(span));
  }
  unpacker.finish();
  return trace;
}

}  // namespace lockstep::parallel
