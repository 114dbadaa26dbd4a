#include "lockstep/parallel/make_strategy.h"

#include "lockstep/parallel/ddp/ddp.h"
#include "lockstep/parallel/server/parameter_server.h"
#include "lockstep/parallel/single_worker.h"
#include "lockstep/parallel/zero/zero.h"

namespace lockstep::parallel {
namespace {

ParameterServerJob server_job(const StrategyJob& job) {
  ParameterServerJob server;
  server.options = job.options.server;
  server.optimizer = job.optimizer;
  server.comm = job.comm;
  server.host = job.host;
  server.compression = job.options.compression;
  server.reduction = job.options.reduction;
  server.most_micro_batches = job.most_micro_batches;
  server.needs_all_workers = job.needs_all_workers;
  return server;
}

}  // namespace

std::unique_ptr<Strategy> make_strategy(const StrategyJob& job, Communicator* world) {
  if (world == nullptr) {
    return std::make_unique<SingleWorker>(job.options.reduction, job.most_micro_batches);
  }
  if (job.options.strategy == StrategyKind::kParameterServer) {
    return make_parameter_server(server_job(job), *world);
  }
  if (job.options.zero > 0) {
    return std::make_unique<Zero>(*world, job.options, job.most_micro_batches);
  }
  return std::make_unique<Ddp>(*world, job.options, job.most_micro_batches);
}

void serve_strategy(const StrategyJob& job, Communicator& world) { serve(server_job(job), world); }

}  // namespace lockstep::parallel
