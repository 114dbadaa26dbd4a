// A model of one's own, trained as `lockstep train` trains its own: from a text file, by any number
// of ranks, with any strategy, to checkpoints from which the same command continues.
//
//   custom_model data.text=book.txt run.dir=mixer
//   lockstep launch -n 4 -- custom_model data.text=book.txt run.dir=mixer parallel.zero=3
//   lockstep watch mixer
//
// torchrun, mpirun and srun start the ranks as well. Settings are those of `lockstep train
// --help-config`; examples/gated_mixer.h is the model.
#include <fmt/core.h>

#include <memory>
#include <vector>

#include "examples/gated_mixer.h"
#include "lockstep/base/error.h"
#include "lockstep/launch/make_world.h"
#include "lockstep/launch/world.h"
#include "lockstep/train/observe/run_record.h"
#include "lockstep/train/options/run_options.h"
#include "lockstep/train/run/run.h"

namespace {

using namespace lockstep;

constexpr int kInterrupted = 75;  // saved; the same command continues

// Of what `options` say, or the usual sizes. All ranks, and all runs that continue this one, have
// to make the same model.
nn::Model make_model(const train::TrainOptions& options) {
  const train::ModelChoice& model = options.model;
  return example::make_mixer({.vocabulary = model.vocabulary,
                              .positions = train::setup_of(options).shape.sequence,
                              .width = model.hidden > 0 ? model.hidden : 64,
                              .layers = model.layers > 0 ? model.layers : 3});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    train::RunSettings settings;
    settings.options.train.precision = plan::Precision::kF32;  // the mixer computes in f32
    train::set_custom_model(settings.options.train, make_model);
    for (int i = 1; i < argc; ++i) settings.config.set(argv[i]);

    const auto world = make_world(settings.options.comm);
    const bool leads = world->rank() == 0;
    const train::StopSignal stop(leads);  // Ctrl-C and SIGTERM save
    std::vector<std::unique_ptr<train::RunObserver>> observers;
    if (leads) {
      observers.push_back(train::make_progress({}));
      observers.push_back(train::make_metrics_file());
      observers.push_back(train::make_run_record());
    }
    const train::RunOutcome outcome = train::run_training(
        settings, observers, stop,
        {.world = world.get(), .host = reachable_host(find_world(), settings.options.comm)});
    return outcome == train::RunOutcome::kFinished ? 0 : kInterrupted;
  } catch (const Error& error) {
    fmt::print(stderr, "custom_model: {}\n", error.what());
    return 1;
  }
}
