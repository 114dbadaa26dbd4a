#include "lockstep/nn/context_slice.h"

#include "lockstep/base/error.h"

namespace lockstep::nn {

std::string_view name(ContextAttention attention) {
  return attention == ContextAttention::kHeads ? "heads" : "ring";
}

int slices_of(const ContextGroup& group) {
  return group.balanced && group.size > 1 ? 2 * group.size : group.size;
}

std::vector<TokenRun> token_runs(const ContextGroup& group, std::int64_t tokens) {
  if (slices_of(group) == group.size) {
    return {{.local = 0, .position = group.rank * tokens, .count = tokens}};
  }
  if (tokens % 2 != 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} tokens of a sequence on each of {} ranks cannot be divided into two slices; take an "
         "even number",
         tokens, group.size);
  }
  const std::int64_t slice = tokens / 2;
  return {{.local = 0, .position = group.rank * slice, .count = slice},
          {.local = slice, .position = (2 * group.size - 1 - group.rank) * slice, .count = slice}};
}

}  // namespace lockstep::nn
