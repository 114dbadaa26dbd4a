#include "lockstep/ops/cpu/linear.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

struct LinearLayers::State {};

LinearLayers::LinearLayers(const Cpu&) {}
LinearLayers::~LinearLayers() = default;

void LinearLayers::run(const ops::Linear&, std::byte*) {
  fail(ErrorCode::kUnsupported, "linear: not on the CPU yet");
}
void LinearLayers::run(const ops::LinearActivation&, std::byte*) {
  fail(ErrorCode::kUnsupported, "linear: not on the CPU yet");
}
void LinearLayers::run(const ops::LinearBackwardInput&, std::byte*) {
  fail(ErrorCode::kUnsupported, "linear: not on the CPU yet");
}
void LinearLayers::run(const ops::LinearBackwardWeight&, std::byte*) {
  fail(ErrorCode::kUnsupported, "linear: not on the CPU yet");
}

std::size_t LinearLayers::scratch(const LinearShape&) const { return 0; }
std::string LinearLayers::implementation(const LinearShape&, LinearPass) const { return "none"; }

}  // namespace lockstep::cpu
