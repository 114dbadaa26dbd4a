#include "lockstep/parallel/gradients/first_writers.h"

namespace lockstep::parallel {

std::vector<std::size_t> first_writers(const nn::MemoryPlan& plan) {
  std::vector<std::size_t> writers(plan.flat.blocks());
  for (std::size_t block = 0; block < writers.size(); ++block) {
    writers[block] = block;
    for (std::size_t p = 0; p < plan.specs[block].parameters.size(); ++p) {
      const nn::FlatParameter* place = plan.flat.place(block, p);
      if (place != nullptr) writers[place->block] = block;
    }
  }
  return writers;
}

}  // namespace lockstep::parallel
