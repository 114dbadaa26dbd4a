#include "lockstep/ops/cpu/norm.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

void run(const Cpu&, const ops::Norm&) {
  fail(ErrorCode::kUnsupported, "norm: not on the CPU yet");
}
void run(const Cpu&, const ops::NormBackward&, std::byte*) {
  fail(ErrorCode::kUnsupported, "norm: not on the CPU yet");
}
std::size_t norm_scratch(const Cpu&, std::int64_t, std::int64_t) { return 0; }

}  // namespace lockstep::cpu
