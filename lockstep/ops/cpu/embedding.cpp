#include "lockstep/ops/cpu/embedding.h"

#include "lockstep/base/error.h"

namespace lockstep::cpu {

void run(const Cpu&, const ops::Embedding&) {
  fail(ErrorCode::kUnsupported, "embedding: not on the CPU yet");
}
void run(const Cpu&, const ops::EmbeddingBackward&) {
  fail(ErrorCode::kUnsupported, "embedding: not on the CPU yet");
}

}  // namespace lockstep::cpu
