// Linear layers: matrix products with what is fused around them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/ops/cpu/cpu.h"
#include "lockstep/ops/ops.h"

namespace lockstep::cpu {

class LinearLayers {
 public:
  explicit LinearLayers(const Cpu& cpu);
  ~LinearLayers();

  // `scratch` has scratch(shape) bytes.
  void run(const ops::Linear& call, std::byte* scratch);
  void run(const ops::LinearActivation& call, std::byte* scratch);
  void run(const ops::LinearBackwardInput& call, std::byte* scratch);
  void run(const ops::LinearBackwardWeight& call, std::byte* scratch);

  std::size_t scratch(const LinearShape& shape) const;
  std::string implementation(const LinearShape& shape, LinearPass pass) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::cpu
