#include "lockstep/parallel/gradients/tensor_norm.h"

#include <cmath>

#include "lockstep/tensor/host_view.h"

namespace lockstep::parallel {

double replicated_squares(nn::Replica& replica) {
  const Tensor result = replica.sums_of_squares().slice(0, 1);
  double sum = 0;
  for (const nn::FlatParameter& parameter : replica.flat().all()) {
    if (!parameter.shard.is_replicated()) continue;
    const Tensor gradient = replica.part_of(parameter).states.gradients;
    if (!ops::is_given(gradient)) continue;
    replica.ops().run(ops::SumOfSquares{.x = gradient, .result = result});
    replica.ops().synchronize();
    sum += HostView(result).as<double>()[0];
  }
  return sum;
}

double norm_over_tensor_group(const nn::Replica& replica, double own_norm, double replicated) {
  const double squares = own_norm * own_norm;
  const double counted = replica.tensor_group().rank == 0 ? squares : squares - replicated;
  return std::sqrt(replica.tensor_axis()->sum(counted));
}

}  // namespace lockstep::parallel
