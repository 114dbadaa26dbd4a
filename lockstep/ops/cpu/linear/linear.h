// Linear layers: matrix products with what is fused around them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/ops/cpu/team/cpu.h"
#include "lockstep/ops/ops.h"

namespace lockstep::cpu {

// One pass of a layer of some shape.
struct LinearTask {
  LinearShape shape;
  LinearPass pass = LinearPass::kForward;
};
LinearTask task_of(const ops::Linear& call);
LinearTask task_of(const ops::LinearActivation& call);
LinearTask task_of(const ops::LinearBackwardInput& call);
LinearTask task_of(const ops::LinearBackwardWeight& call);

class LinearLayers {
 public:
  explicit LinearLayers(const Cpu& cpu);
  ~LinearLayers();

  // Calls are checked already (ops/check.h); `scratch` has scratch(task_of(call)) bytes.
  void run(const ops::Linear& call, std::byte* scratch);
  void run(const ops::LinearActivation& call, std::byte* scratch);
  void run(const ops::LinearBackwardInput& call, std::byte* scratch);
  void run(const ops::LinearBackwardWeight& call, std::byte* scratch);

  std::size_t scratch(const LinearTask& task) const;
  std::size_t scratch(const LinearShape& shape) const;  // for all passes
  // The implementation that multiplies the matrices; if it depends on the fused operations, the
  // last choice.
  std::string implementation(const LinearTask& task) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::cpu
