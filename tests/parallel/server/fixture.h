// Small trainings with parameter servers, and the same by a single worker.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/comm/native/threads.h"
#include "lockstep/parallel/ddp/ddp.h"
#include "lockstep/parallel/offload/local_update.h"
#include "lockstep/parallel/server/parameter_server.h"
#include "lockstep/parallel/server/slices/worker_sum.h"
#include "lockstep/parallel/server/wire/server_wire.h"
#include "tests/nn/quiet_blocks.h"
#include "tests/nn/tiny_models.h"

namespace lockstep::parallel::server_test {

struct Training {
  ServerOptions servers;
  optim::OptimizerOptions optimizer{.max_grad_norm = 0};
  CompressionOptions compression;
  nn::Tiny model = nn::Tiny::kGpt2;
  bool wide = false;   // with a table of tokens of more than one chunk of the norm
  bool quiet = false;  // blocks do not say what they have finished with
  std::function<nn::Model(nn::Model)> change;  // of the model; nothing: it stays as it is
  nn::Recompute recompute = nn::Recompute::kNone;
  DType dtype = DType::kF32;
  DType gradient = DType::kF32;
  double loss_scale = 1;
  int workers = 1;
  int micro_batches = 4;  // of a step
  int steps = 3;
  bool collects = true;
  bool expects = true;  // whether updates are announced beforehand
  Reduction reduction = Reduction::kFast;
  std::chrono::nanoseconds timeout = std::chrono::seconds(60);
  std::string emulate;

  int ranks() const {
    return workers + (servers.placement == ServerPlacement::kDedicated ? servers.servers : 0);
  }
  StepPlan plan() const { return {.sequences = micro_batches, .micro = 1}; }
  std::int64_t vocabulary() const { return wide ? 6000 : nn::kVocabulary; }
  double rate(std::int64_t step) const { return 1e-2 / static_cast<double>(step); }
};

inline std::unique_ptr<Ops> server_ops(int threads) { return make_cpu_ops(threads); }

inline ParameterServerJob job_of(const Training& training) {
  ParameterServerJob job;
  job.options = training.servers;
  job.optimizer = training.optimizer;
  job.compression = training.compression;
  job.comm.timeout = training.timeout;
  job.comm.emulate = training.emulate;
  job.reduction = training.reduction;
  job.most_micro_batches = training.micro_batches;
  job.make_ops = server_ops;
  return job;
}

inline nn::OptimizerState state_of(const optim::OptimizerOptions& optimizer) {
  if (optim::has_moments(optimizer)) return nn::OptimizerState::kMoments;
  return optim::has_velocity(optimizer) ? nn::OptimizerState::kVelocity : nn::OptimizerState::kNone;
}

inline nn::Model model_for(const Training& training) {
  nn::Model model = nn::make_tiny(training.model, 0, training.vocabulary());
  if (training.change) model = training.change(std::move(model));
  return training.quiet ? nn::quiet(std::move(model)) : std::move(model);
}

inline nn::Replica make_trainee(const Training& training, Ops& ops) {
  nn::Setup setup = nn::tiny_setup(training.model, training.dtype, training.recompute);
  setup.gradient = training.gradient;
  return nn::make_replica(model_for(training), setup, ops, state_of(training.optimizer));
}

inline nn::TinyBatch batch_of(const Training& training, std::int64_t step,
                              std::int64_t micro_batch) {
  return nn::TinyBatch(nn::tiny_batch_shape(training.model),
                       static_cast<std::uint64_t>(1000 * step + micro_batch),
                       training.vocabulary());
}

// Returns the sum of losses; gradients are accumulated.
inline double learn(const Training& training, nn::Replica& replica, std::int64_t step,
                    nn::TinyBatch& batch, std::int64_t targets) {
  const double factor = training.loss_scale / static_cast<double>(targets);
  const Tensor losses = replica.forward_backward(
      batch.batch(),
      {.step = static_cast<std::uint64_t>(step), .loss_factor = static_cast<float>(factor)});
  replica.ops().synchronize();
  return nn::sum_of(losses);
}

inline std::int64_t targets_of(const Training& training, const Share& share) {
  std::int64_t targets = 0;
  for (std::int64_t i = 0; i < share.micro_batches; ++i) {
    nn::TinyBatch batch = batch_of(training, share.step, share.first_micro_batch + i);
    targets += nn::count_targets(batch.batch());
  }
  return targets;
}

// What is compared, to the bit.
struct Result {
  std::vector<std::byte> parameters;
  std::vector<std::byte> master, first_moment, second_moment, velocity;
  std::vector<double> losses;  // the sum of each step
  std::vector<double> norms;
  friend bool operator==(const Result&, const Result&) = default;
};

inline void take_rows(const nn::Replica& replica, Result& result) {
  const nn::States& states = replica.states();
  result.parameters = nn::bytes_of(states.parameters);
  result.master = nn::bytes_of(states.master);
  result.first_moment = nn::bytes_of(states.first_moment);
  result.second_moment = nn::bytes_of(states.second_moment);
  result.velocity = nn::bytes_of(states.velocity);
}

inline void sum_gradients(const std::vector<std::vector<float>>& gradients, std::span<float> sum) {
  std::vector<const std::byte*> inputs;
  for (const std::vector<float>& each : gradients) {
    inputs.push_back(reinterpret_cast<const std::byte*>(each.data()));
  }
  sum_of_workers(inputs, DType::kF32, sum);
}

// A single worker that sums the gradients of each worker's share, and then these sums by the tree.
inline Result train_alone(const Training& training) {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  nn::Replica replica = make_trainee(training, *ops);
  replica.initialise(5);
  Result result;
  std::int64_t updates = 0;
  for (int step = 1; step <= training.steps; ++step) {
    std::int64_t targets = 0;
    for (int worker = 0; worker < training.workers; ++worker) {
      targets += targets_of(training, share_of(training.plan(), step, worker, training.workers));
    }
    double loss = 0;
    std::vector<std::vector<float>> gradients;
    const Tensor buffer = replica.states().gradients;
    for (int worker = 0; worker < training.workers; ++worker) {
      const Share share = share_of(training.plan(), step, worker, training.workers);
      replica.zero_gradients();
      for (std::int64_t i = 0; i < share.micro_batches; ++i) {
        nn::TinyBatch batch = batch_of(training, step, share.first_micro_batch + i);
        loss += learn(training, replica, step, batch, targets);
      }
      gradients.emplace_back(buffer.as<float>().begin(), buffer.as<float>().end());
    }
    sum_gradients(gradients, buffer.as<float>());
    TierMover nothing_moves;
    const UpdateResult update = local_update(replica, nothing_moves,
                                             {.optimizer = training.optimizer,
                                              .updates = updates,
                                              .rate = training.rate(step),
                                              .loss_scale = training.loss_scale});
    if (!update.skipped) ++updates;
    result.losses.push_back(loss);
    const bool has_norm = training.optimizer.max_grad_norm > 0 || training.dtype == DType::kF16;
    result.norms.push_back(has_norm ? update.gradient_norm : 0);
  }
  take_rows(replica, result);
  return result;
}

// What a test does besides: before a share is computed, and after its step has ended.
struct Hooks {
  // The listener of blocks instead of the strategy; empty: the strategy.
  std::function<std::unique_ptr<nn::BlockListener>(nn::Replica& replica, Strategy& strategy)>
      listener;
  std::function<void(int worker, const Share& share)> before_share;
  std::function<void(int worker, const Share& share, const StepSummary& summary)> after_share;
};

inline Result train_worker(const Training& training, Strategy& strategy, const Hooks& hooks) {
  const std::unique_ptr<Ops> ops = make_cpu_ops(1);
  nn::Replica replica = make_trainee(training, *ops);
  replica.initialise(strategy.worker() == 0 ? 5 : 6);  // worker 0's is what counts
  const struct Leaving {
    Strategy& strategy;
    ~Leaving() { strategy.leave(); }
  } leaving{strategy};  // before the replica goes
  strategy.start(replica);
  std::unique_ptr<nn::BlockListener> listener;
  if (hooks.listener) listener = hooks.listener(replica, strategy);
  replica.set_listener(listener ? listener.get() : &strategy);
  Result result;
  std::int64_t updates = 0;
  std::int64_t steps = 0;
  while (const auto share = strategy.next(training.plan(), steps, training.steps)) {
    if (hooks.before_share) hooks.before_share(strategy.worker(), *share);
    const StepStart totals = strategy.begin_step({.targets = targets_of(training, *share)});
    const UpdateRequest request{.optimizer = training.optimizer,
                                .updates = updates,
                                .rate = training.rate(share->step),
                                .loss_scale = training.loss_scale};
    if (training.expects) strategy.expect_update(request);
    StepEnd end;
    if (share->micro_batches == 0) strategy.begin_micro_batch(0, 0);
    std::optional<nn::TinyBatch> batch;  // lives until the update
    for (std::int64_t i = 0; i < share->micro_batches; ++i) {
      strategy.begin_micro_batch(i, share->micro_batches);
      batch.emplace(batch_of(training, share->step, share->first_micro_batch + i));
      end.losses.push_back(learn(training, replica, share->step, *batch, totals.targets));
    }
    const UpdateResult update = strategy.update(request);
    if (!update.skipped) ++updates;
    const StepSummary summary = strategy.end_step(end);
    result.losses.push_back(summary.loss);
    result.norms.push_back(update.gradient_norm);
    steps = share->step;
    if (hooks.after_share) hooks.after_share(strategy.worker(), *share, summary);
  }
  if (!training.collects) return result;  // slices may still be coming into the flat buffers
  strategy.collect();
  take_rows(replica, result);
  return result;
}

// Every worker's result, on ranks that are threads. Servers are ranks or threads beside.
inline std::vector<Result> train_with_servers(const Training& training, const Hooks& hooks = {}) {
  std::vector<Result> results(static_cast<std::size_t>(training.workers));
  const ParameterServerJob job = job_of(training);
  CommOptions comm;
  comm.measure = false;
  run_threads(
      training.ranks(),
      [&](Communicator& world) {
        if (is_server(training.servers, world.rank(), world.size())) return serve(job, world);
        const std::unique_ptr<Strategy> strategy = make_parameter_server(job, world);
        results[static_cast<std::size_t>(world.rank())] = train_worker(training, *strategy, hooks);
      },
      comm);
  return results;
}

// The same by DDP.
inline std::vector<Result> train_with_ddp(const Training& training, ParallelOptions options,
                                          const Hooks& hooks = {}) {
  std::vector<Result> results(static_cast<std::size_t>(training.workers));
  options.reduction = training.reduction;
  options.check_every = 1;
  CommOptions comm;
  comm.measure = false;
  run_threads(
      training.workers,
      [&](Communicator& world) {
        Ddp ddp(world, options, (training.micro_batches + training.workers - 1) / training.workers);
        results[static_cast<std::size_t>(world.rank())] = train_worker(training, ddp, hooks);
      },
      comm);
  return results;
}

// The wire of a server that sends nothing.
struct SilentWire final : ServerWire {
  void to_worker(int, OutMessage) override {}
  void to_control(int, OutMessage) override {}
  void to_server(int, OutMessage) override {}
};

}  // namespace lockstep::parallel::server_test
