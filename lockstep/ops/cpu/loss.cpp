#include "lockstep/ops/cpu/loss.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

void run(const Cpu&, const ops::CrossEntropy&) {
  fail(ErrorCode::kUnsupported, "loss: not on the CPU yet");
}
void run(const Cpu&, const ops::SquaredError&) {
  fail(ErrorCode::kUnsupported, "loss: not on the CPU yet");
}

}  // namespace lockstep::cpu
