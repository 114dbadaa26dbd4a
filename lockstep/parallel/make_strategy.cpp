#include "lockstep/parallel/make_strategy.h"

#include "lockstep/parallel/alone.h"
#include "lockstep/parallel/ddp.h"

namespace lockstep::parallel {

std::unique_ptr<Strategy> make_strategy(const ParallelOptions& options, Communicator* world,
                                        std::int64_t most_micro_batches) {
  if (world == nullptr) return std::make_unique<Alone>(options.reduction, most_micro_batches);
  return std::make_unique<Ddp>(*world, options, most_micro_batches);
}

}  // namespace lockstep::parallel
