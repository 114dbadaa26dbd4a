#include "lockstep/ops/cpu/optimizer.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

void run(const Cpu&, const ops::Adam&) {
  fail(ErrorCode::kUnsupported, "optimizer: not on the CPU yet");
}
void run(const Cpu&, const ops::Sgd&) {
  fail(ErrorCode::kUnsupported, "optimizer: not on the CPU yet");
}
void run(const Cpu&, const ops::SumOfSquares&) {
  fail(ErrorCode::kUnsupported, "optimizer: not on the CPU yet");
}

}  // namespace lockstep::cpu
