#include "lockstep/cli/train_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/system/stack_trace.h"
#include "lockstep/launch/exit_status.h"
#include "lockstep/launch/leave_watch.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/launch/rank_link.h"
#include "lockstep/launch/variables.h"
#include "lockstep/live/report_file.h"
#include "lockstep/parallel/strategy/mesh_of_job.h"
#include "lockstep/train/observe/run_record.h"
#include "lockstep/train/observe/straggler.h"
#include "lockstep/train/run/job.h"
#include "lockstep/train/trainer/run_group.h"

namespace lockstep::cli {
namespace {

train::ProgressOptions progress_options(const train::RunOptions& options) {
  train::ProgressOptions progress;
  progress.every = options.log_every;
  progress.path = process_environment()(kTerminalVariable).value_or("");
  progress.terminal = !progress.path.empty() || ::isatty(STDERR_FILENO) == 1;
  return progress;
}

// Reports every step to the supervisor, and a straggler that is so many times as slow as the
// others.
class SupervisorReports : public train::RunObserver {
 public:
  SupervisorReports(const SupervisorLink& link, double evict_slow)
      : link_(link), evict_slow_(evict_slow) {}

  void begin(const train::RunFacts& facts) override {
    link_.report_step(facts.first_step - 1);
    work_ = facts.work;
    if (evict_slow_ > 0) watch_.emplace(work_);
  }
  void step(const train::StepRecord& record) override {
    link_.report_step(record.metrics.step);
    if (!watch_) return;
    watch_->add(record.metrics.costs);
    const auto slow = watch_->straggler();
    if (!slow || slow->times < evict_slow_) return;
    link_.report_slow(slow->rank,
                      fmt::format("it took {:.1f} times as long as the others in most of the last "
                                  "steps (survive.evict_slow: {:g})",
                                  slow->times, evict_slow_));
    watch_.emplace(work_);  // the launcher may not be able to replace it yet
  }
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const train::RunEnd&) override {}

 private:
  const SupervisorLink& link_;
  double evict_slow_;
  std::vector<double> work_;
  std::optional<train::StragglerWatch> watch_;
};

using Observers = std::vector<std::unique_ptr<train::RunObserver>>;

Observers observers_of(const train::RunOptions& options) {
  Observers observers;
  observers.push_back(train::make_progress(progress_options(options)));
  observers.push_back(train::make_metrics_file());
  observers.push_back(train::make_sample_file());
  observers.push_back(train::make_event_file());
  observers.push_back(train::make_run_record());
  observers.push_back(live::make_report());
  return observers;
}

Observers observers_of_rank(const train::RunSettings& settings, const train::RunRanks& ranks) {
  if (ranks.world != nullptr && ranks.world->rank() != 0) return {};
  return observers_of(settings.options);
}

// The groups of a mesh number their ranks by themselves. The error of a rank that was lost, with
// its number in the job and its coordinates.
Error on_mesh(const Error& error, const plan::Mesh& mesh, const Communicator& world) {
  // A death ends all communicators, one after the other.
  constexpr std::chrono::milliseconds kVerdict{100};
  if (error.code() == ErrorCode::kPeerLost) world.wait_for_failure(kVerdict);
  const std::optional<Error> failure = world.failure();
  if (!failure) return Error(error.code(), error.what(), {}, error.where());
  std::string text = failure->what();
  for (const int rank : failure->ranks()) {
    text += fmt::format("; rank {} is ({})", rank, plan::describe_rank(mesh, rank));
  }
  return Error(failure->code(), text, failure->ranks(), failure->where());
}

World at_place(World world, const RankPlace& place) {
  world.generation = place.generation;
  world.rank = place.rank;
  world.size = place.size;
  world.local_rank = place.local_rank;
  world.local_size = place.local_size;
  return world;
}

// One generation of the job.
train::RunOutcome train_with_others(const train::RunSettings& settings, const World& world,
                                    const train::StopSignal& stop,
                                    const std::optional<SupervisorLink>& supervisor,
                                    train::Survival& survival, const std::stop_token& leaves) {
  std::unique_ptr<Communicator> communicator;
  if (world.size > 1 || settings.options.comm.backend == Backend::kMpi) {
    // Nothing is to be saved before the first generation, so a rank that waits for the others ends
    // at once. In later ones it continues until all can save.
    std::optional<train::StartUp> start_up;
    if (world.generation == 0) start_up.emplace(stop, kToBeContinued, world.rank == 0);
    communicator = make_world(world, settings.options.comm, leaves);
  }
  const train::RunRanks all{.world = communicator.get(),
                            .host = reachable_host(world, settings.options.comm),
                            .survival = supervisor ? &survival : nullptr,
                            .generation = world.generation,
                            .most = world.most_size};
  Observers observers = observers_of_rank(settings, all);
  if (supervisor && world.rank == 0) {
    const train::TrainOptions& options = settings.options.train;
    const bool evicts = train::cannot_evict(options.parallel).empty();
    observers.push_back(
        std::make_unique<SupervisorReports>(*supervisor, evicts ? options.survive.evict_slow : 0));
  }
  try {
    return train::run_training(settings, observers, stop, all);
  } catch (const Error& error) {
    const auto mesh = communicator == nullptr
                          ? std::nullopt
                          : parallel::mesh_of_job(settings.options.train.parallel, world.size);
    if (!mesh || !train::is_loss_of_ranks(error.code())) throw;
    throw on_mesh(error, *mesh, *communicator);
  }
}

}  // namespace

train::RunOutcome train_as(const train::RunSettings& settings, const train::RunRanks& ranks,
                           const train::StopSignal& stop) {
  return train::run_training(settings, observers_of_rank(settings, ranks), stop, ranks);
}

int train_rank(const train::RunSettings& given, World world) {
  const std::optional<SupervisorLink> supervisor = SupervisorLink::find();
  train::RunSettings settings = given;
  if (supervisor) {
    settings.options.comm.wait_limit =
        given.options.train.survive.hang_timeout.value_or(std::chrono::nanoseconds(0));
    print_stack_on_signal(
        fmt::format("lockstep: stack of rank {} (addr2line -Cfe shows the lines):", world.rank));
  }
  const bool launched = world.size > 1 || supervisor;
  const train::StopSignal stop(!launched);  // a launcher says it for its ranks
  train::Survival survival;
  if (supervisor) survival.stays = [&](int request) { supervisor->report_stays(request); };
  if (world.is_spare && supervisor) {
    // Its own number follows those of all ranks.
    train::warm_up(settings, world.rank);
    const auto place = supervisor->await_generation(std::nullopt, {});
    if (!place) return 0;
    world = at_place(world, *place);
  }
  while (true) {
    std::optional<std::string> why;
    std::vector<int> hung;
    survival.regroups = 0;
    if (world.most_size > 0) survival.numbering = world.generation;
    std::optional<LeaveWatch> watch;
    if (supervisor) watch.emplace(*supervisor, world.generation, survival.regroups);
    const std::stop_token leaves = watch ? watch->leaves() : std::stop_token();
    try {
      const auto outcome = train_with_others(settings, world, stop, supervisor, survival, leaves);
      if (outcome != train::RunOutcome::kRegroups) return exit_code_of(outcome);
    } catch (const Error& error) {
      const bool is_loss = train::is_loss_of_ranks(error.code());
      // All other errors need a person, and would come again before that.
      if (supervisor && !is_loss) supervisor->report_final();
      // One that was started for this generation, and has kept nothing yet, can be in the next.
      const bool never_met =
          world.generation > 0 && leaves.stop_requested() && !survival.is_decided;
      if (!supervisor || !is_loss || !(survival.keeps || never_met)) throw;
      why = error.what();
      if (error.code() == ErrorCode::kTimeout) hung = error.ranks();
    }
    watch.reset();
    const auto place = supervisor->await_generation(why, hung);
    if (!place) return kToBeContinued;  // what it keeps is not saved: that takes the others
    world = at_place(world, *place);
  }
}

int exit_code_of(train::RunOutcome outcome) {
  return outcome == train::RunOutcome::kFinished ? 0 : kToBeContinued;
}

}  // namespace lockstep::cli
