#include "lockstep/parallel/local_update.h"

#include <algorithm>
#include <cmath>

#include "lockstep/optim/gradient_norm.h"
#include "lockstep/parallel/gradient_chunks.h"

namespace lockstep::parallel {

UpdateResult local_update(nn::Replica& replica, const UpdateRequest& request) {
  UpdateResult result;
  result.gradient_norm =
      chunked_gradient_norm(replica.ops(), replica.flat(), replica.states().gradients,
                            replica.sums_of_squares()) /
      request.loss_scale;
  result.skipped = !std::isfinite(result.gradient_norm);
  if (result.skipped) return result;

  for (std::size_t block = 0; block < replica.flat().blocks(); ++block) {
    update_mine(replica, block, request, result.gradient_norm);
  }
  replica.ops().synchronize();
  return result;
}

void update_mine(nn::Replica& replica, std::size_t block, const UpdateRequest& request,
                 double gradient_norm) {
  const double clip = optim::clip_factor(gradient_norm, request.optimizer.clip);
  const optim::UpdateStep step{.step = request.updates + 1,
                               .rate = request.rate,
                               .gradient_scale = clip / request.loss_scale};
  const bool rounds = replica.setup().dtype != DType::kF32;
  const nn::FlatRange mine = replica.my_range(block);
  for (const nn::FlatRun& run : replica.flat().runs(block)) {
    const std::size_t first = std::max(run.range.first, mine.first);
    const std::size_t end = std::min(run.range.end(), mine.end());
    if (first >= end) continue;
    const nn::States states = replica.mine(block).slice({first - mine.first, end - first});
    optim::update(replica.ops(), request.optimizer, step,
                  {.master = states.master,
                   .gradient = states.gradients,
                   .parameter = rounds ? states.parameters : Tensor(),
                   .moment = states.moment,
                   .variance = states.variance,
                   .velocity = states.velocity,
                   .decays = run.decays});
  }
}

}  // namespace lockstep::parallel
