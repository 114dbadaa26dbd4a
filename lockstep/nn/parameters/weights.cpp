#include "lockstep/nn/parameters/weights.h"

#include "lockstep/nn/parameters/initial_values.h"

namespace lockstep::nn {
namespace {

FlatParameters flat_of(const Model& model, DType dtype, const Ops& ops) {
  const Setup setup = {.shape = {.batch = 1, .sequence = 1}, .dtype = dtype};
  return {model, specs_of(model, setup, ops)};
}

}  // namespace

Weights::Weights(const Model& model, DType dtype, const Ops& ops)
    : flat_(flat_of(model, dtype, ops)),
      buffer_(flat_.elements() * size_of(dtype), ops.device()),
      view_(buffer_.tensor(dtype, {static_cast<std::int64_t>(flat_.elements())})) {}

void Weights::initialise(std::uint64_t seed, int threads) {
  fill_zero(view_);
  for (const FlatParameter& parameter : flat_.all()) {
    fill_initial(FlatParameters::view(view_, parameter), parameter.initial, seed, parameter.name,
                 threads);
  }
}

}  // namespace lockstep::nn
