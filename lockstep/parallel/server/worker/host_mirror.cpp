#include "lockstep/parallel/server/worker/host_mirror.h"

namespace lockstep::parallel {
namespace {

std::size_t bytes_of(const nn::MemoryPlan& plan, DType dtype) {
  return plan.flat.elements() * size_of(dtype);
}

}  // namespace

std::size_t HostMirror::bytes(const nn::MemoryPlan& plan) {
  return bytes_of(plan, plan.setup.gradient) + bytes_of(plan, plan.setup.dtype);
}

HostMirror::HostMirror(nn::Replica& replica)
    : replica_(replica),
      gradients_(bytes_of(replica.plan(), replica.setup().gradient)),
      parameters_(bytes_of(replica.plan(), replica.setup().dtype)),
      states_(replica.states()),
      down_(replica.ops().device()),
      up_(replica.ops().device()) {
  const auto elements = static_cast<std::int64_t>(replica.flat().elements());
  states_.gradients = gradients_.tensor(replica.setup().gradient, {elements});
  states_.parameters = parameters_.tensor(replica.setup().dtype, {elements});
  if (replica.setup().dtype == DType::kF32) states_.master = states_.parameters;
  copy(states_.parameters, replica.states().parameters);
}

Event HostMirror::send_gradients(nn::FlatRange range) {
  down_.wait(replica_.ops().record());
  down_.run([to = states_.slice(range).gradients, from = replica_.states().slice(range).gradients] {
    copy(to, from);
  });
  return down_.record();
}

void HostMirror::bring(std::size_t block) {
  if (current_ > block) return;
  // What is queued still reads the parameters before.
  if (current_ == 0) up_.wait(replica_.ops().record());
  for (; current_ <= block; ++current_) {
    const nn::FlatRange range = replica_.flat().range(current_);
    up_.run([to = replica_.states().slice(range).parameters,
             from = states_.slice(range).parameters] { copy(to, from); });
  }
  replica_.ops().wait(up_.record());
}

}  // namespace lockstep::parallel
