// Ops is the interface of all operations. reference/, cpu/ and cuda/ implement it; nn/ and the
// layers above use nothing else.
//
//   ops.run(Linear{.x = x, .weight = w, .bias = b, .y = y});
//
// Operations are documented at their structs (ops/arguments.h). Every run() checks shapes, types
// and devices first and throws Error(kInvalidArgument) before anything is written. Results depend
// on the inputs and on the number of threads, never on timing. Operations begin in the order of the
// calls, and each sees what those before it wrote; the caller sees it after synchronize().
//
// Some operations need a workspace. scratch() returns its size from shapes alone, so that memory
// can be planned; use_scratch() provides it, and an operation with too little workspace throws
// Error(kInvalidArgument). No operation allocates memory of the size of its tensors.
//
// A GPU is asynchronous: run() returns when the operation is queued. synchronize() then throws the
// error of an index outside its table. Copies and fills (tensor/tensor.h) outside of streams wait
// for the operations of their GPU; in_order() queues them among the operations, without waiting.
//
// An Ops belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/ops/arguments.h"
#include "lockstep/ops/float8.h"
#include "lockstep/ops/optimizer_arguments.h"
#include "lockstep/ops/relative_bias.h"
#include "lockstep/ops/routing.h"
#include "lockstep/tensor/device.h"
#include "lockstep/tensor/moment.h"
#include "lockstep/tensor/stream.h"

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
  // If the gradient of a layer is computed in parts of its outputs: the number of all outputs.
  std::int64_t of_outputs = 0;
  bool fp8 = false;  // its products are ScaledMatmuls, to results of these types
};

// Captured operations that can be queued again as a whole, with the same tensors and numbers. The
// Ops, the tensors and the scratch memory must outlive it.
class CapturedStep {
 public:
  virtual ~CapturedStep() = default;
  virtual void launch() = 0;
  virtual std::size_t nodes() const = 0;  // kernels, copies and fills
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
  virtual void run(const ops::SoftCap&) = 0;
  virtual void run(const ops::Norm&) = 0;
  virtual void run(const ops::NormBackward&) = 0;
  virtual void run(const ops::Embedding&) = 0;
  virtual void run(const ops::EmbeddingBackward&) = 0;
  virtual void run(const ops::Attention&) = 0;
  virtual void run(const ops::AttentionBackward&) = 0;
  virtual void run(const ops::Rotary&) = 0;
  virtual void run(const ops::LogitStatistics&) = 0;
  virtual void run(const ops::CrossEntropy&) = 0;
  virtual void run(const ops::SquaredError&) = 0;
  virtual void run(const ops::Adam&) = 0;
  virtual void run(const ops::Sgd&) = 0;
  virtual void run(const ops::SumOfSquares&) = 0;
  virtual void run(const ops::Quantize&) = 0;
  virtual void run(const ops::ScaledMatmul&) = 0;
  virtual void run(const ops::UpdateScaling&) = 0;
  virtual void run(const ops::MergeAttention&) = 0;
  virtual void run(const ops::CopyColumns&) = 0;
  virtual void run(const ops::Route&) = 0;
  virtual void run(const ops::RouteBackward&) = 0;
  virtual void run(const ops::GatherTokens&) = 0;
  virtual void run(const ops::CombineTokens&) = 0;
  virtual void run(const ops::WeightRows&) = 0;
  virtual void run(const ops::HeadNorm&) = 0;
  virtual void run(const ops::HeadNormBackward&) = 0;
  // By default made of the operations above, on the CPU.
  virtual void run(const ops::AdamSegments&);
  virtual void run(const ops::ChunkedSumOfSquares&);
  virtual void run(const ops::ClipScale&);
  virtual void run(const ops::DecodeAttention&);
  virtual void run(const ops::Sample&);
  virtual void run(const ops::AddCounts&);
  virtual void run(const ops::CountTargets&);
  virtual void run(const ops::BalanceExperts&);
  virtual void run(const ops::RelativeBias&);
  virtual void run(const ops::RelativeBiasBackward&);

  // Bytes of scratch memory that operations of such shapes need; all others need none.
  virtual std::size_t scratch(const LinearShape& shape) const = 0;  // for all of its passes
  // Forward and backward; never less for more keys.
  virtual std::size_t scratch(const ops::AttentionShape& shape) const = 0;
  // Of DecodeAttention over a cache of shape.keys positions, with shape.batch sequences.
  virtual std::size_t decode_attention_scratch(const ops::AttentionShape& shape) const;
  virtual std::size_t norm_scratch(std::int64_t rows, std::int64_t width) const = 0;  // backward
  // For the backward of rows of this width and a table of this many entries.
  virtual std::size_t embedding_scratch(std::int64_t /*rows*/, std::int64_t /*width*/,
                                        std::int64_t /*classes*/) const {
    return 0;
  }
  // Sets the workspace, u8 on device(), which must stay valid until the next call.
  virtual void use_scratch(const Tensor& memory) { scratch_ = memory; }

  // Whether LinearBackwardInput accepts the input z of an activation, which is then kept instead of
  // the derivative.
  virtual bool differentiates_from_input(ops::Activation /*activation*/) const { return false; }

  // Which implementation multiplies the matrices of such a layer, for reports and tests.
  virtual std::string implementation(const LinearShape& shape, LinearPass pass) const = 0;
  // The algorithms that were chosen by time so far, "PRODUCT: ALGORITHM (how)" in a line each: with
  // others, results would have other bits.
  virtual std::string chosen_algorithms() const { return {}; }

  // Throws Error(kInvalidArgument) while a step is captured.
  virtual void synchronize() {}

  // An event for all queued operations. / Makes later operations wait for an event. Not during a
  // capture.
  virtual Event record() { return {}; }
  virtual void wait(const Event& event) { event.wait(); }
  // When all that is queued so far is done, to measure times; not while a step is captured.
  virtual Moment moment() { return {}; }

  // Calls the task; its copies and fills are queued in order with the operations.
  virtual void in_order(const std::function<void()>& task) { task(); }

  // Operations between begin_capture() and end_capture() on one thread are not run but captured;
  // every launch() of the result runs them. If something throws in between, end_capture() must
  // still be called; it throws then, or its result must not be used. Throws Error(kUnsupported) if
  // can_capture() is false.
  virtual bool can_capture() const { return false; }
  virtual void begin_capture();
  virtual std::unique_ptr<CapturedStep> end_capture();

 protected:
  // The scratch memory; throws where it has fewer bytes than `needed`.
  std::byte* scratch_memory(std::size_t needed) const;

 private:
  Tensor scratch_;
};

// Captures what `work` runs. Throws what it throws.
std::unique_ptr<CapturedStep> capture(Ops& ops, const std::function<void()>& work);

// Plain single-threaded loops: the reference for all others.
std::unique_ptr<Ops> make_reference_ops();

// Fast, with a fixed number of threads (the caller is one of them).
std::unique_ptr<Ops> make_cpu_ops(int threads);

// On a GPU. Throws Error(kUnsupported) where it cannot be used (tensor/cuda.h).
std::unique_ptr<Ops> make_cuda_ops(int index);

// The fast ones of a device; threads are the CPU's.
std::unique_ptr<Ops> make_ops(Device device, int threads);

}  // namespace lockstep
