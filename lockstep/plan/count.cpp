#include "lockstep/plan/count.h"

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

[[noreturn]] void too_large() {
  fail(ErrorCode::kInvalidArgument,
       "the sizes of this model multiply to more than 2^64; check whether one of them has too many "
       "digits");
}

}  // namespace

Count product(std::initializer_list<Count> factors) {
  Count result = 1;
  for (const Count factor : factors) {
    if (__builtin_mul_overflow(result, factor, &result)) too_large();
  }
  return result;
}

Count sum(std::initializer_list<Count> terms) {
  Count result = 0;
  for (const Count term : terms) {
    if (__builtin_add_overflow(result, term, &result)) too_large();
  }
  return result;
}

}  // namespace lockstep::plan
