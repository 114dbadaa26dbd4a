#include "lockstep/data/tokenizer_ids.h"

#include "lockstep/base/error.h"

namespace lockstep::data {

void check_ids(std::span<const TokenId> ids, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      fail(ErrorCode::kInvalidArgument,
           "token {} of {} is {}; the ids of this tokenizer are from 0 to {}", i, ids.size(),
           ids[i], vocabulary - 1);
    }
  }
}

}  // namespace lockstep::data
