#include "lockstep/comm/reduce_op.h"

namespace lockstep {
namespace {
constexpr std::string_view kNames[] = {"sum", "prod", "min", "max", "mean"};
}

std::string_view name(const ReduceOp& op) {
  return op.kind == ReduceOp::kUser ? std::string_view(op.user->name) : kNames[op.kind];
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view wanted) {
  for (int kind = ReduceOp::kSum; kind <= ReduceOp::kMean; ++kind) {
    if (kNames[kind] == wanted) return ReduceOp(static_cast<ReduceOp::Kind>(kind));
  }
  return std::nullopt;
}

}  // namespace lockstep
