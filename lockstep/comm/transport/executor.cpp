#include "lockstep/comm/transport/executor.h"

#include <cstring>

#include "lockstep/comm/reduce/combine.h"

namespace lockstep::transport {
namespace {

using schedule::Region;
using schedule::Round;
using schedule::Space;
using schedule::Step;
using schedule::StepKind;

bool is_receive(const Step& step) {
  return step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce;
}

// Input and output may be the same memory, so they count as one.
bool overlap(const Region& a, const Region& b) {
  if ((a.space == Space::kScratch) != (b.space == Space::kScratch)) return false;
  return a.first < b.first + b.count && b.first < a.first + a.count;
}

// Whether receive `index` of a round must not take effect the moment it arrives: a send still
// reads the place, or a step listed before or another receive uses it.
bool must_wait(const Round& round, std::size_t index) {
  const Step& receive = round[index];
  for (std::size_t i = 0; i < round.size(); ++i) {
    const Step& other = round[i];
    if (i == index) continue;
    if (other.kind == StepKind::kSend) {
      if (overlap(other.source, receive.target)) return true;
      continue;
    }
    const bool reads = other.kind != StepKind::kReceive && overlap(other.source, receive.target);
    const bool writes =
        overlap(other.target, receive.target) ||
        (receive.kind == StepKind::kReceiveReduce && overlap(other.target, receive.source));
    if (is_receive(other) ? reads || writes : i < index && (reads || writes)) return true;
  }
  return false;
}

}  // namespace

Prepared prepare(schedule::Program program, int chunks) {
  Prepared prepared{std::move(program), chunks, {}};
  for (const Round& round : prepared.program.rounds) {
    std::vector<bool> deferred(round.size(), false);
    for (std::size_t i = 0; i < round.size(); ++i) {
      deferred[i] = is_receive(round[i]) && must_wait(round, i);
    }
    prepared.deferred.push_back(std::move(deferred));
  }
  return prepared;
}

void Executor::run(const Prepared& prepared, const Call& call, const Fingerprint& fingerprint) {
  const std::byte* input = call.in.bytes;
  if (call.kind == Collective::kAllToAll && call.in.bytes == call.out.bytes) {
    snapshot_.assign(call.in.bytes, call.in.bytes + call.in.count * size_of(call.in.dtype));
    input = snapshot_.data();
  }
  Layout layout(call, input, rank_, static_cast<int>(channels_.size()), prepared.chunks,
                prepared.program.scratch);
  if (scratch_.size() < layout.scratch_bytes()) scratch_.resize(layout.scratch_bytes());
  layout.set_scratch(scratch_.data());
  for (std::size_t i = 0; i < prepared.program.rounds.size(); ++i) {
    run_round(prepared.program.rounds[i], prepared.deferred[i], layout, call, fingerprint);
  }
  if (reduces(call.kind) && call.op.kind == ReduceOp::kMean && call.out.bytes != nullptr &&
      (call.kind != Collective::kReduce || call.root == rank_)) {
    divide(call.out.bytes, call.out.count, call.out.dtype, static_cast<int>(channels_.size()));
  }
}

void Executor::run_round(const Round& round, const std::vector<bool>& deferred,
                         const Layout& layout, const Call& call, const Fingerprint& fingerprint) {
  outgoing_.clear();
  incoming_.clear();
  std::size_t held = 0;
  for (std::size_t i = 0; i < round.size(); ++i) {
    if (deferred[i]) held += layout.bytes(round[i].target);
  }
  if (held_.size() < held) held_.resize(held);
  held = 0;
  for (std::size_t i = 0; i < round.size(); ++i) {
    const Step& step = round[i];
    if (step.kind == StepKind::kSend) {
      const std::span<const std::byte> payload(layout.address(step.source),
                                               layout.bytes(step.source));
      traffic_.add(step.peer, payload.size());
      outgoing_.emplace_back(*channels_[static_cast<std::size_t>(step.peer)], step.peer,
                             fingerprint, payload);
    } else if (is_receive(step)) {
      Landing landing;
      landing.bytes = layout.bytes(step.target);
      landing.dtype = fingerprint.dtype;
      landing.op = call.op;
      if (deferred[i]) {
        landing.target = held_.data() + held;
        held += landing.bytes;
      } else {
        landing.target = layout.address(step.target);
        if (step.kind == StepKind::kReceiveReduce) landing.operand = layout.address(step.source);
      }
      incoming_.emplace_back(*channels_[static_cast<std::size_t>(step.peer)], rank_, step.peer,
                             fingerprint, landing, &history_);
    }
  }
  if (!outgoing_.empty() || !incoming_.empty()) progress_.complete(outgoing_, incoming_);
  held = 0;
  for (std::size_t i = 0; i < round.size(); ++i) {
    const Step& step = round[i];
    if (step.kind == StepKind::kSend || (is_receive(step) && !deferred[i])) continue;
    apply(step, held_.data() + held, layout, call);
    if (deferred[i]) held += layout.bytes(step.target);
  }
}

void Executor::apply(const Step& step, const std::byte* arrived, const Layout& layout,
                     const Call& call) {
  const std::size_t bytes = layout.bytes(step.target);
  if (bytes == 0) return;
  std::byte* const target = layout.address(step.target);
  const auto reduce_into = [&](const std::byte* left, const std::byte* right) {
    const std::byte* const inputs[] = {left, right};
    combine(inputs, {&target, 1}, bytes / size_of(call.in.dtype), call.in.dtype, call.op);
  };
  switch (step.kind) {
    case StepKind::kReceive:
      std::memcpy(target, arrived, bytes);
      break;
    case StepKind::kReceiveReduce:
      reduce_into(layout.address(step.source), arrived);
      break;
    case StepKind::kReduce:
      reduce_into(target, layout.address(step.source));
      break;
    case StepKind::kCopy:
      if (const std::byte* source = layout.address(step.source); source != target) {
        std::memmove(target, source, bytes);
      }
      break;
    case StepKind::kSend:
      break;
  }
}

}  // namespace lockstep::transport
