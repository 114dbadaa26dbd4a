#include "lockstep/train/stored_model.h"

#include "lockstep/ops/ops.h"
#include "lockstep/train/manifest.h"
#include "lockstep/train/run_options.h"

namespace lockstep::train {

TrainOptions stored_options(const Checkpoint& checkpoint) {
  RunOptions options;
  Config config;
  bind(config, options);
  config.read_toml(checkpoint.config, (checkpoint.folder / kConfigFile).string());
  return options.train;
}

nn::FlatParameters flat_of(const nn::Model& model) {
  const auto ops = make_reference_ops();
  nn::Setup setup;
  setup.shape = {.batch = 1, .sequence = 1, .source_sequence = 1};
  return {model, nn::specs_of(model, setup, *ops)};
}

}  // namespace lockstep::train
