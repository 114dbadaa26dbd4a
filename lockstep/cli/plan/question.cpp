#include "lockstep/cli/plan/question.h"

#include <iterator>

namespace lockstep::cli {

using plan::Count;
using plan::Recompute;

Count activations(const PlanQuestion& question, Recompute recompute) {
  if (!question.shape) return 0;
  return plan::all_activation_bytes(*question.shape, question.sequence, question.batch,
                                    question.precision, recompute);
}

std::vector<Recompute> recompute_modes(const PlanQuestion& question) {
  if (!question.shape) return {Recompute::kNone};
  return {std::begin(plan::kFormulaRecompute), std::end(plan::kFormulaRecompute)};
}

bool fits(const PlanQuestion& question, const plan::StateBytes& states, Recompute recompute,
          Count memory) {
  return plan::sum({states.total(), activations(question, recompute)}) <= memory;
}

std::optional<Count> fewest_ranks(const PlanQuestion& question, int zero_stage, Recompute recompute,
                                  Count memory) {
  const Count kept = activations(question, recompute);
  if (kept > memory) return std::nullopt;
  return plan::fewest_ranks(question.parameters, question.precision, zero_stage, memory - kept);
}

}  // namespace lockstep::cli
