#include "lockstep/ops/cuda/attention/decode.h"

#include "lockstep/base/error.h"

namespace lockstep::cuda {

void run(const Context& context, const ops::DecodeAttention& call) {
  if (call.head_size > attention::kMostDecodeHead) {
    fail(ErrorCode::kUnsupported,
         "decode_attention: a head size of {} is above the limit of {} on a GPU; use the CPU",
         call.head_size, attention::kMostDecodeHead);
  }
  if (attention::decode_tickets(call) > Context::kTickets) {
    fail(ErrorCode::kUnsupported,
         "decode_attention: {} sequences with {} key heads are too many for one launch on a GPU; "
         "use smaller batches",
         call.packed.shape()[0], call.kv_heads);
  }
  attention::run_decode(context, call);
}

}  // namespace lockstep::cuda
