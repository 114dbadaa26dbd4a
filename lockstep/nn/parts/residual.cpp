#include "lockstep/nn/parts/residual.h"

namespace lockstep::nn {

Shape stream_of(const Setup& setup, const AttentionOptions& attention) {
  return {stream_tokens(setup.shape, attention.side, attention.tensor).count, attention.hidden};
}

ops::Dropout branch_dropout(const Pass& pass, const AttentionOptions& attention, double probability,
                            std::string_view branch) {
  const std::int64_t sequence = sequence_of(pass.setup.shape, attention.side);
  return own_part(dropout_of(pass, branch, probability, sequence * attention.hidden),
                  stream_tokens(pass.setup.shape, attention.side, attention.tensor),
                  attention.hidden);
}

}  // namespace lockstep::nn
