#include "lockstep/ops/cpu/elementwise.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

void run(const Cpu&, const ops::Activate&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::Multiply&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::Add&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::SwiGlu&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::SwiGluBackward&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::Drop&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::Cast&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::Scale&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}
void run(const Cpu&, const ops::Rotary&) {
  fail(ErrorCode::kUnsupported, "elementwise: not on the CPU yet");
}

}  // namespace lockstep::cpu
