#include "lockstep/ops/cpu/attention.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

void run(const Cpu&, const ops::Attention&, std::byte*) {
  fail(ErrorCode::kUnsupported, "attention: not on the CPU yet");
}
void run(const Cpu&, const ops::AttentionBackward&, std::byte*) {
  fail(ErrorCode::kUnsupported, "attention: not on the CPU yet");
}
std::size_t attention_scratch(const Cpu&, const ops::AttentionShape&) { return 0; }

}  // namespace lockstep::cpu
