#include "lockstep/nn/generate/continuation.h"

#include "lockstep/base/error.h"
#include "lockstep/nn/generate/sampling.h"

namespace lockstep::nn {
namespace {

// One more than can be queued: the last that was taken is still read.
constexpr std::size_t kSlots = Continuation::kAhead + 1;

template <class T>
void upload(Ops& ops, const Tensor& to, T value) {
  ops.in_order([&] { copy(to, tensor_of(std::span<T>(&value, 1))); });
}

}  // namespace

Continuation::Continuation(Decoder& decoder, const StepChoice& choice)
    : decoder_(decoder), ops_(decoder.ops()), choice_(choice), on_cpu_(ops_.device() == Device{}) {
  ops::check_choice(choice.options);
  const std::size_t bytes =
      kSlots * static_cast<std::size_t>(decoder.batch()) * sizeof(std::int32_t);
  if (on_cpu_) {
    cpu_slots_ = Buffer(bytes);
  } else {
    pinned_slots_ = PinnedBuffer(bytes);
  }
}

Continuation::~Continuation() {
  for (const Round& round : rounds_) round.done.await();
}

Tensor Continuation::slot(std::size_t index) const {
  const std::int64_t batch = decoder_.batch();
  const std::size_t offset = index * static_cast<std::size_t>(batch) * sizeof(std::int32_t);
  return on_cpu_ ? cpu_slots_.tensor(DType::kI32, {batch}, offset)
                 : pinned_slots_.tensor(DType::kI32, {batch}, offset);
}

void Continuation::begin(std::int64_t sequence, std::uint64_t seed, std::int64_t text_position) {
  const Decoder::StepMemory& memory = decoder_.step_memory();
  const auto element = [&](const Tensor& tensor) { return tensor.slice(sequence, 1); };
  upload(ops_, element(memory.seeds), static_cast<std::int64_t>(sampling_seed(seed)));
  upload(ops_, element(memory.text_positions), static_cast<std::int32_t>(text_position));
  upload(ops_, element(memory.lengths), static_cast<std::int32_t>(decoder_.position(sequence)));
  decoder_.queue_choice(choice_, sequence);
}

void Continuation::queue_round() {
  if (rounds_.size() >= kAhead) {
    fail(ErrorCode::kInvalidArgument, "{} rounds of tokens are queued; take() one first",
         rounds_.size());
  }
  const std::size_t index = next_slot_;
  next_slot_ = (next_slot_ + 1) % kSlots;
  ops_.in_order([&] { copy(slot(index), decoder_.step_memory().tokens); });
  rounds_.push_back({ops_.record(), index});
}

void Continuation::step_without_round() { decoder_.queue_step(choice_); }

void Continuation::queue_step() {
  step_without_round();
  queue_round();
}

std::span<const std::int32_t> Continuation::take(const std::vector<bool>& wanted) {
  if (rounds_.empty()) {
    fail(ErrorCode::kInvalidArgument, "no round of tokens is queued; queue_step() one first");
  }
  const Round round = rounds_.front();
  rounds_.pop_front();
  round.done.wait();
  const auto tokens = slot(round.slot).as<const std::int32_t>();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != ops::kNoToken || !wanted[i]) continue;
    try {
      ops_.synchronize();  // what followed has read that token, and says so
    } catch (const Error&) {
    }
    ops::fail_choice(static_cast<std::size_t>(choice_.choices), false);
  }
  return tokens;
}

}  // namespace lockstep::nn
