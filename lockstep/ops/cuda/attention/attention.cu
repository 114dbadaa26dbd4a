#include "lockstep/ops/cuda/attention/attention.h"

#include <algorithm>

#include "lockstep/ops/cuda/attention/bias_sums.h"
#include "lockstep/ops/cuda/attention/hopper.h"
#include "lockstep/ops/cuda/attention/mma.h"
#include "lockstep/ops/cuda/attention/plain.h"
#include "lockstep/ops/cuda/attention/split.h"
#include "lockstep/ops/cuda/attention/statistics.h"

namespace lockstep::cuda {
namespace {

template <class Call>
struct Implementation {
  bool (*accepts)(const Context&, const Call&);
  void (*run)(const Context&, const Call&);
};

template <class Call>
bool accepts_all(const Context&, const Call&) {
  return true;
}

// Hopper's kernels know neither windows nor soft caps nor biases.
template <class Call>
bool hopper_takes(const Context& context, const Call& call) {
  return call.shape.window == 0 && call.softcap == 0 && call.shape.distances == 0 &&
         hopper_accepts(context, call);
}

// In the order in which they are tried. All of them write the same log_sum, so forward and backward
// may use different ones.
constexpr Implementation<ops::Attention> kForward[] = {
    {attention::split_accepts, attention::run_split},
    {hopper_takes, run_hopper},
    {attention::mma_accepts, attention::run_mma},
    {accepts_all, attention::run_plain},
};
constexpr Implementation<ops::AttentionBackward> kBackward[] = {
    {hopper_takes, run_hopper},
    {attention::mma_accepts, attention::run_mma},
    {accepts_all, attention::run_plain},
};

template <class Call, std::size_t kCount>
void run_first(const Implementation<Call> (&implementations)[kCount], const Context& context,
               const Call& call) {
  for (const Implementation<Call>& implementation : implementations) {
    if (implementation.accepts(context, call)) return implementation.run(context, call);
  }
}

}  // namespace

void run(const Context& context, const ops::Attention& call) { run_first(kForward, context, call); }
void run(const Context& context, const ops::AttentionBackward& call) {
  run_first(kBackward, context, call);
}

std::size_t attention_scratch(const Context& context, const ops::AttentionShape& shape) {
  const std::size_t backward =
      attention::statistics_bytes(shape) + attention::bias_sums_bytes(shape);
  return std::max(
      {backward, attention::split_scratch(context, shape), hopper_scratch(context, shape)});
}

}  // namespace lockstep::cuda
