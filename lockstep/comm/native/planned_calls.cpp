#include "lockstep/comm/native/planned_calls.h"

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/least_bytes.h"
#include "lockstep/comm/native/links.h"
#include "lockstep/comm/transport/layout.h"

namespace lockstep {
namespace {

std::vector<int> dealt_out(int ranks, int machines) {
  std::vector<int> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(emulated_node(rank, ranks, machines));
  return all;
}

CommOptions with_hosts(CommOptions options, int machines) {
  options.emulated_nodes = machines;
  return options;
}

Links links_of(const CommOptions& options, int machines) {
  const auto link = options.emulated_link();
  return link ? emulated_links(*link, machines > 1) : assumed_links();
}

// Whether ranks share memory, with nothing emulated between them.
bool is_fused(const CommOptions& options, int machines) {
  return machines == 1 && options.emulate.empty() && options.transport != TransportChoice::kTcp;
}

}  // namespace

PlannedCalls::PlannedCalls(int ranks, int machines, const CommOptions& options)
    : selector_(dealt_out(ranks, machines), is_fused(options, machines),
                with_hosts(options, machines), links_of(options, machines)) {}

LinkBytes PlannedCalls::sent(const Call& call) {
  const std::string algorithm = selector_.algorithm(call);
  const bool gives_a_block =
      call.kind == Collective::kScatter || call.kind == Collective::kReduceScatter;
  const std::size_t elements = gives_a_block ? call.out.count : call.in.count;
  const auto [at, is_new] = counted_.try_emplace(
      {call.kind, algorithm, call.root, elements, size_of(dtype_of_call(call))});
  if (is_new) at->second = count(call, algorithm);
  return at->second;
}

LinkBytes PlannedCalls::count(const Call& call, const std::string& algorithm) const {
  if (algorithm == kFused) {
    LinkBytes bytes;
    for (int rank = 0; rank < selector_.shape().ranks; ++rank) {
      bytes.inside += least_bytes_sent(call, rank, selector_.shape().ranks);
    }
    return bytes;
  }
  const schedule::Algorithm& chosen = schedule::find_algorithm(call.kind, algorithm);
  schedule::Shape shape = selector_.shape();
  shape.root = call.root;
  if (const auto reason = chosen.refuses(shape)) {
    fail(ErrorCode::kUnsupported, "{} by {}: {}", name(call.kind), algorithm, *reason);
  }
  const int chunks = chosen.chunks(shape);
  LinkBytes bytes;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const schedule::Program program = chosen.program(shape, rank);
    const transport::Layout layout(call, nullptr, rank, shape.ranks, chunks, program.scratch);
    const int machine = shape.machines[static_cast<std::size_t>(rank)];
    for (const schedule::Round& round : program.rounds) {
      for (const schedule::Step& step : round) {
        if (step.kind != schedule::StepKind::kSend) continue;
        const bool near = shape.machines[static_cast<std::size_t>(step.peer)] == machine;
        (near ? bytes.inside : bytes.across) += layout.bytes(step.source);
      }
    }
  }
  return bytes;
}

}  // namespace lockstep
