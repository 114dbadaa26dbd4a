#include "lockstep/plan/memory.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"

namespace lockstep::plan {
namespace {

void check_stage(int zero_stage) {
  if (zero_stage < 0 || zero_stage >= kZeroStages) {
    fail(ErrorCode::kInvalidArgument, "unknown ZeRO stage {}; expected 0, 1, 2 or 3", zero_stage);
  }
}

Count value_bytes(Precision precision) { return precision == Precision::kF32 ? 4 : 2; }

// Bytes per parameter that every rank holds, and that ranks shard.
struct Split {
  Count whole = 0;
  Count sharded = 0;
};

Split split(Precision precision, int zero_stage) {
  check_stage(zero_stage);
  const StateBytes each = bytes_per_parameter(precision);
  Split split;
  (zero_stage >= 1 ? split.sharded : split.whole) += each.optimizer();
  (zero_stage >= 2 ? split.sharded : split.whole) += each.gradients;
  (zero_stage >= 3 ? split.sharded : split.whole) += each.parameters;
  return split;
}

std::string times(Count factor, std::string_view of) { return fmt::format("{}{}", factor, of); }

}  // namespace

std::string_view name(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return "bf16";
    case Precision::kF16:
      return "f16";
    case Precision::kF32:
      return "f32";
    case Precision::kFp8:
      return "fp8";
  }
  return "?";
}

Precision precision_from_name(std::string_view text) {
  for (const Precision precision : kAllPrecisions) {
    if (name(precision) == text) return precision;
  }
  fail(ErrorCode::kInvalidArgument, "unknown precision '{}'; expected bf16, f16, f32 or fp8", text);
}

StateBytes bytes_per_parameter(Precision precision) {
  const Count value = value_bytes(precision);
  const Count master = precision == Precision::kF32 ? 0 : 4;
  return {.parameters = value,
          .gradients = value,
          .master = master,
          .first_moment = 4,
          .second_moment = 4};
}

StateBytes state_bytes(Count parameters, Precision precision, int zero_stage, Count ranks) {
  check_stage(zero_stage);
  if (ranks == 0)
    fail(ErrorCode::kInvalidArgument, "the number of ranks is 0; it must be 1 or more");
  const Count shard = divide_up(parameters, ranks);
  const Count optimizer_elements = zero_stage >= 1 ? shard : parameters;
  const StateBytes each = bytes_per_parameter(precision);
  return {.parameters = product({each.parameters, zero_stage >= 3 ? shard : parameters}),
          .gradients = product({each.gradients, zero_stage >= 2 ? shard : parameters}),
          .master = product({each.master, optimizer_elements}),
          .first_moment = product({each.first_moment, optimizer_elements}),
          .second_moment = product({each.second_moment, optimizer_elements})};
}

std::string state_formula(Precision precision, int zero_stage) {
  const auto [whole, sharded] = split(precision, zero_stage);
  if (sharded == 0) return times(whole, "P");
  if (whole == 0) return times(sharded, "P/N");
  return times(whole, "P") + " + " + times(sharded, "P/N");
}

std::optional<Count> fewest_ranks(Count parameters, Precision precision, int zero_stage,
                                  Count budget) {
  const auto [whole, sharded] = split(precision, zero_stage);
  const Count replicated = product({whole, parameters});
  if (replicated > budget) return std::nullopt;
  if (sharded == 0) return 1;
  const Count largest_shard = (budget - replicated) / sharded;
  if (largest_shard == 0) return std::nullopt;
  return divide_up(parameters, largest_shard);
}

Count traffic_multiple(int zero_stage) {
  check_stage(zero_stage);
  return zero_stage == 3 ? 3 : 2;
}

Count traffic_bytes(Count parameters, Precision precision, int zero_stage, Count ranks) {
  if (ranks == 0)
    fail(ErrorCode::kInvalidArgument, "the number of ranks is 0; it must be 1 or more");
  return product({traffic_multiple(zero_stage), bytes_per_parameter(precision).gradients, ranks - 1,
                  divide_up(parameters, ranks)});
}

Count activation_bytes(const ModelShape& shape, Count sequence, Count batch, Precision precision,
                       Recompute recompute) {
  check(shape);
  const Count value = value_bytes(precision);
  const Count tokens = product({sequence, batch});
  if (recompute == Recompute::kSelective) {
    fail(ErrorCode::kInvalidArgument,
         "no formula has the activations of recompute = \"{}\"; a plan of the run has them",
         name(recompute));
  }
  if (recompute == Recompute::kFull) return product({tokens, shape.hidden, value});
  const Count kept = product({tokens, shape.hidden, 16 * value + 2});
  if (recompute == Recompute::kAttention) return kept;
  return sum({kept, product({2 * value + 1, shape.heads, sequence, tokens})});
}

Count all_activation_bytes(const ModelShape& shape, Count sequence, Count batch,
                           Precision precision, Recompute recompute) {
  const Count layer = activation_bytes(shape, sequence, batch, precision, recompute);
  Count across = 0;  // of a decoder's layer besides
  if (recompute != Recompute::kFull) {
    const Count value = value_bytes(precision);
    const Count tokens = product({sequence, batch});
    across = product({tokens, shape.hidden, 6 * value + 1});
    if (recompute == Recompute::kNone) {
      across = sum({across, product({2 * value + 1, shape.heads, sequence, tokens})});
    }
  }
  return sum({product({shape.all_layers(), layer}), product({shape.decoder_layers, across})});
}

bool activation_formula_is_exact(const ModelShape& shape) {
  return !shape.parts().rotary && !shape.is_encoder_decoder() && shape.kv_heads == shape.heads &&
         shape.feed_forward == product({4, shape.hidden});
}

}  // namespace lockstep::plan
