// Mixtures of experts on a GPU: the choice of experts, and rows on their way to them and back.
#pragma once

#include "lockstep/ops/cuda/device/context.h"
#include "lockstep/ops/routing.h"

namespace lockstep::cuda {

// Of up to kMostExperts experts.
inline constexpr std::int64_t kMostExperts = 2 * Context::kPartials;
void run(const Context& context, const ops::Route& call);

// An index outside its table is recorded in context.faults, and its row counts as zeros.
void run(const Context& context, const ops::RouteBackward& call);
void run(const Context& context, const ops::GatherTokens& call);
void run(const Context& context, const ops::CombineTokens& call);
void run(const Context& context, const ops::WeightRows& call);

void run(const Context& context, const ops::AddCounts& call);
void run(const Context& context, const ops::CountTargets& call);
void run(const Context& context, const ops::BalanceExperts& call);

}  // namespace lockstep::cuda
