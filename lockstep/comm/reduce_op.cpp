#include "lockstep/comm/reduce_op.h"

namespace lockstep {
namespace {
constexpr std::string_view kNames[] = {"sum", "prod", "min", "max", "mean"};
}

std::string_view name(const ReduceOp& op) {
  return op.kind == ReduceOp::kUser ? std::string_view(op.user->name) : kNames[op.kind];
}

}  // namespace lockstep
