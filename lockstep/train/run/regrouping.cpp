#include "lockstep/train/run/regrouping.h"

#include <algorithm>
#include <span>
#include <vector>

namespace lockstep::train {

bool Regrouping::decline() {
  const double mine = survival_->regroups;
  const std::vector<double> all = group_.numbers(std::span(&mine, 1));
  declined_ = static_cast<int>(*std::ranges::max_element(all));
  if (group_.leads() && survival_->stays) survival_->stays(declined_);
  return false;
}

}  // namespace lockstep::train
