// Which tokens of a sequence a rank has.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lockstep/base/error.h"
#include "lockstep/plan/mesh/mesh.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/options/ring_limit.h"

namespace lockstep::train {

nn::ContextGroup context_of(const TrainOptions& options, std::int64_t sequence) {
  const parallel::ParallelOptions& parallel = options.parallel;
  if (parallel.context == 1) return {};
  const bool causal = family_of(options) != ModelFamily::kBert && !translates(options);
  const bool ring = parallel.context_attention == parallel::ContextChoice::kRing ||
                    (parallel.context_attention == parallel::ContextChoice::kAuto && causal &&
                     ring_limit(options).empty());
  const nn::ContextGroup group{
      .size = parallel.context,
      .rank = parallel.context_rank,
      .attention = ring ? nn::ContextAttention::kRing : nn::ContextAttention::kHeads,
      .balanced = ring && causal};
  const int slices = nn::slices_of(group);
  if (sequence % slices == 0) return group;
  const std::int64_t below = sequence / slices * slices;
  const std::string lengths =
      below > 0 ? fmt::format("{} or {}", below, below + slices) : fmt::to_string(slices);
  const int each = slices / group.size;
  const std::string fitting =
      sequence % each == 0
          ? fmt::format(
                "parallel.context = {}, or ",
                fmt::join(plan::nearest_divisors(static_cast<int>(sequence) / each, group.size),
                          " or "))
          : "";
  fail(ErrorCode::kInvalidArgument,
       "parallel.context = {} cuts sequences into {} slices of equal length, which sequences of {} "
       "tokens do not have; take {}train.seq_len = {}",
       group.size, slices, sequence, fitting, lengths);
}

}  // namespace lockstep::train
