// The contract of every operation, and the seam to devices: whoever computes (reference/, cpu/, a
// GPU later) implements Ops; nn/ and everything above knows nothing else.
//
//   ops.run(Linear{.x = x, .weight = w, .bias = b, .y = y});
//
// What an operation means stands at its struct (ops/arguments.h). Every run() checks shapes, types
// and devices first and throws Error(kInvalidArgument) before anything is written. Results depend
// on the inputs and on the number of threads, never on timing. Operations begin in the order of the
// calls, and each sees what those before it wrote; the caller sees it after synchronize().
//
// Some operations need room to work in. scratch() says how much, from shapes alone, so that a plan
// can be made before any memory exists; use_scratch() hands it over, and an operation that finds
// less than it needs throws Error(kInvalidArgument). No operation allocates memory of the size of
// its tensors.
//
// An Ops belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/ops/arguments.h"
#include "lockstep/tensor/device.h"

namespace lockstep {

// What a linear layer computes: forward with or without activation, gradient of the input, of the
// weight.
enum class LinearPass : std::uint8_t { kForward, kBackwardInput, kBackwardWeight };

struct LinearShape {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  DType dtype = DType::kF32;
  DType gradient = DType::kF32;  // of the weight
  // Where these outputs are a part of a layer's, whose gradient comes in parts: how many it has.
  std::int64_t of_outputs = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;

  virtual std::string name() const = 0;  // "reference", "cpu, 2 threads, neon"
  virtual Device device() const { return {}; }

  virtual void run(const ops::Linear&) = 0;
  virtual void run(const ops::LinearActivation&) = 0;
  virtual void run(const ops::LinearBackwardInput&) = 0;
  virtual void run(const ops::LinearBackwardWeight&) = 0;
  virtual void run(const ops::Activate&) = 0;
  virtual void run(const ops::Multiply&) = 0;
  virtual void run(const ops::Add&) = 0;
  virtual void run(const ops::SwiGlu&) = 0;
  virtual void run(const ops::SwiGluBackward&) = 0;
  virtual void run(const ops::Drop&) = 0;
  virtual void run(const ops::Cast&) = 0;
  virtual void run(const ops::Scale&) = 0;
  virtual void run(const ops::Norm&) = 0;
  virtual void run(const ops::NormBackward&) = 0;
  virtual void run(const ops::Embedding&) = 0;
  virtual void run(const ops::EmbeddingBackward&) = 0;
  virtual void run(const ops::Attention&) = 0;
  virtual void run(const ops::AttentionBackward&) = 0;
  virtual void run(const ops::Rotary&) = 0;
  virtual void run(const ops::CrossEntropy&) = 0;
  virtual void run(const ops::SquaredError&) = 0;
  virtual void run(const ops::Adam&) = 0;
  virtual void run(const ops::Sgd&) = 0;
  virtual void run(const ops::SumOfSquares&) = 0;

  // Bytes of scratch memory that operations of such shapes need; all others need none.
  virtual std::size_t scratch(const LinearShape& shape) const = 0;  // for all of its passes
  // Forward and backward; never less for more keys.
  virtual std::size_t scratch(const ops::AttentionShape& shape) const = 0;
  virtual std::size_t norm_scratch(std::int64_t rows, std::int64_t width) const = 0;  // backward
  // Memory on device(), as u8, that stays valid until another is handed over.
  virtual void use_scratch(const Tensor& memory) { scratch_ = memory; }

  // Which implementation multiplies the matrices of such a layer, for reports and tests.
  virtual std::string implementation(const LinearShape& shape, LinearPass pass) const = 0;

  virtual void synchronize() {}

 protected:
  // The scratch memory; throws where it has fewer bytes than `needed`.
  std::byte* scratch_memory(std::size_t needed) const;

 private:
  Tensor scratch_;
};

// Plain loops that one can read, in one thread; the oracle of all others.
std::unique_ptr<Ops> make_reference_ops();

// Fast, with a fixed number of threads (the caller is one of them).
std::unique_ptr<Ops> make_cpu_ops(int threads);

}  // namespace lockstep
