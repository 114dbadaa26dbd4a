// Generates text with a decoder on its device: tokens are sampled there and are the input of the
// next step; the host reads them some steps later.
//
//   decoder.prefill(prompt);
//   Continuation text(decoder, {.options = sampling.choice(), .choices = classes});
//   text.begin(0, seed, prompt.size());
//   for (text.queue_round(); ...;) {
//     while (text.queued() < text.ahead()) text.queue_step();
//     std::span<const std::int32_t> tokens = text.take(wanted);  // one of each sequence
//   }
//
// On a CPU a step is computed when it is queued. Nothing else may use the decoder during the
// lifetime of the continuation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lockstep/nn/generate/decoder.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::nn {

class Continuation {
 public:
  // Rounds of tokens that are queued on a GPU. Steps after the end of a text are wasted, so it is
  // small; two suffice to keep the GPU busy.
  static constexpr std::size_t kAhead = 4;

  // Throws Error(kInvalidArgument) for options out of their range.
  Continuation(Decoder& decoder, const StepChoice& choice);
  // Waits for what is queued.
  ~Continuation();
  Continuation(const Continuation&) = delete;
  Continuation& operator=(const Continuation&) = delete;

  // How many rounds to queue before the first is taken.
  std::size_t ahead() const { return on_cpu_ ? 1 : kAhead; }

  // Chooses the token behind what the decoder has read of a sequence. `text_position` is its place
  // in the text, and `seed` that of SamplingOptions.
  void begin(std::int64_t sequence, std::uint64_t seed, std::int64_t text_position);
  // Makes a round of the tokens that were begun. Every sequence is begun before.
  void queue_round();
  // Reads the token of every sequence and chooses the next, a round.
  void queue_step();
  // Steps without making a round: what begin() then replaces in some sequences comes with it.
  void step_without_round();

  std::size_t queued() const { return rounds_.size(); }  // rounds that were not taken
  // The tokens of the oldest round, one of each sequence; they hold until the next call. Throws
  // Error(kInvalidArgument) where no token could be chosen for a sequence in [0, batch) that
  // `wanted` holds.
  std::span<const std::int32_t> take(const std::vector<bool>& wanted);

 private:
  struct Round {
    Event done;
    std::size_t slot = 0;
  };
  Tensor slot(std::size_t index) const;

  Decoder& decoder_;
  Ops& ops_;
  const StepChoice choice_;
  const bool on_cpu_;
  std::deque<Round> rounds_;
  std::size_t next_slot_ = 0;
  Buffer cpu_slots_;
  PinnedBuffer pinned_slots_;
};

}  // namespace lockstep::nn
