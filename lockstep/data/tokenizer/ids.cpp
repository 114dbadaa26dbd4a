#include "lockstep/data/tokenizer/ids.h"

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

void check_ids(std::span<const TokenId> ids, const Vocabulary& vocabulary) {
  check_ids(ids, vocabulary.size());
  for (const TokenId id : ids) {
    if (!vocabulary.token(id)) {
      fail(ErrorCode::kInvalidArgument, "no token of this tokenizer has the id {}", id);
    }
  }
}

}  // namespace lockstep::data
