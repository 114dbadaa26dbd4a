#include "lockstep/comm/reduce_op.h"

namespace lockstep {
namespace {
constexpr std::string_view kReduceOpNames[] = {"sum", "prod", "min", "max", "mean"};
}

std::string_view name(const ReduceOp& op) {
  return op.kind == ReduceOp::kUser ? std::string_view(op.user->name) : kReduceOpNames[op.kind];
}

}  // namespace lockstep
