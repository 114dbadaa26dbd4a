// Data parallel training with parameter servers: workers push gradients to servers, which run the
// optimizer, and pull parameters. parallel/strategy/server_options.h has the settings and the
// placement of servers.
//
//   bsp                       the bits of one worker with the same steps (sums over workers by the
//                             tree of parallel/server/slices/worker_sum.h, in f32)
//   asp, ssp                  every worker's gradients, the mean over its own targets, are an
//                             update of their own; work is handed out by server 0 (next())
//   max_grad_norm > 0         bsp: servers send each other sums of squares before any updates;
//                             asp, ssp: each worker clips its own gradients, after backward
//   max_grad_norm = 0         slices are updated as they come. No rank has all gradients: there is
//                             no norm, and infinite gradients are not skipped
//   compression               gradients are pushed as payloads of a codec, slice by slice, with a
//                             residual at the worker; servers sum what they decode
//                             (parallel/server/slices/wire_format.h)
//
// The schedule kPriority (N blocks, each of one slice):
//
//   compute   | backward N-1 | ... | backward 0 || forward 0 | forward 1 | ...
//   push                     | N-1 | ...  | 0 | 1 |              0 overtakes what has not left
//   pull                           | N-1 | ...| 0 | 1 | 2 ...    forward i waits for block i alone
//
// Transport: separate TCP connections, on the loopback by default, and rings inside a node
// (parallel/server/wire/pipe.h); both sides prove the job's token. With CommOptions::emulate, each
// worker and each server has an emulated NIC.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/options.h"
#include "lockstep/ops/ops.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy/options.h"
#include "lockstep/parallel/strategy/served_states.h"
#include "lockstep/parallel/strategy/server_options.h"
#include "lockstep/parallel/strategy/strategy.h"
#include "lockstep/parallel/strategy/worker_position.h"

namespace lockstep::parallel {

struct ParameterServerJob {
  ServerOptions options;
  optim::OptimizerOptions optimizer;
  CommOptions comm;  // timeout, interface, emulate
  CompressionOptions compression;
  std::string host;  // the address for other nodes; empty: comm.interface, else none
  Reduction reduction = Reduction::kFast;  // the order in which a worker sums its micro-batches
  std::int64_t most_micro_batches = 1;     // of one worker's share
  bool needs_all_workers = false;          // asp and ssp: the others do not continue without one
  // Makes the operations of a server, with that many threads, on the server's thread.
  std::function<std::unique_ptr<Ops>(int threads)> make_ops = make_cpu_ops;
};

// All ranks of `world` call these together; `world` is not used after they return. Workers call the
// first, which also starts a colocated server; dedicated servers call the second, which returns
// when all workers have left. Errors are those of Communicator; kPeerLost names the lost worker or
// server. The strategy must be destroyed also after an error: its destructor notifies the servers
// that the worker leaves.
std::unique_ptr<Strategy> make_parameter_server(const ParameterServerJob& job, Communicator& world);
void serve(const ParameterServerJob& job, Communicator& world);

// All slices, in their order in the flat buffer.
std::vector<ServedSlice> served_slices(const ParameterServerJob& job, const nn::MemoryPlan& plan);

// The memory of a worker, including its colocated server.
std::vector<Request> server_memory(const ParameterServerJob& job, const nn::MemoryPlan& plan,
                                   const WorkerPosition& position);

}  // namespace lockstep::parallel
