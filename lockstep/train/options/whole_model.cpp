// The model of a run, undivided.
#include "lockstep/train/options/options.h"

namespace lockstep::train {

nn::Model whole_model_of(TrainOptions options) {
  options.parallel.tensor = 1;
  options.parallel.tensor_rank = 0;
  options.parallel.sequence = false;
  return model_of(options);
}

}  // namespace lockstep::train
