// Trains the model of examples/gated_mixer.h, block by block: a memory plan, a replica, and an
// update of one's own. The model learns to continue a small text letter by letter; the program
// prints the loss as it falls. examples/custom_model.cpp trains the same model as `lockstep train`
// does.
#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "examples/gated_mixer.h"
#include "lockstep/nn/replica/replica.h"

namespace {

using namespace lockstep;

constexpr const char* kText =
    "a block says what it needs, and whoever runs it says where that is. so it can be kept, or "
    "made again, or gathered from others, and the block need not know. ";

}  // namespace

int main() {
  constexpr std::int64_t kSequence = 64;
  const nn::BatchShape shape = {.batch = 4, .sequence = kSequence, .source_sequence = 0};
  const auto ops = make_cpu_ops(1);

  nn::Model model =
      example::make_mixer({.vocabulary = 128, .positions = kSequence, .width = 32, .layers = 3});
  nn::Setup setup;
  setup.shape = shape;
  setup.recompute = nn::Recompute::kSelective;
  nn::MemoryPlan plan = nn::plan_memory(model, setup, *ops, nn::OptimizerState::kMoments);
  fmt::print("{}", nn::text(plan));
  nn::Replica replica(std::move(model), std::move(plan), *ops);
  replica.initialise(1);

  const std::string text = kText;
  std::vector<std::int32_t> tokens, targets;
  for (std::int64_t token = 0; token < shape.tokens(); ++token) {
    const auto at = static_cast<std::size_t>(token / kSequence * 31 + token % kSequence);
    tokens.push_back(text[at % text.size()]);
    targets.push_back(text[(at + 1) % text.size()]);
  }
  nn::Batch batch;
  batch.shape = shape;
  batch.tokens = tensor_of(std::span(tokens), {shape.batch, shape.sequence});
  batch.targets = tensor_of(std::span(targets), {shape.batch, shape.sequence});

  double first = 0;
  double loss = 0;
  for (int step = 1; step <= 40; ++step) {
    replica.zero_gradients();
    const Tensor losses =
        replica.forward_backward(batch, {.step = static_cast<std::uint64_t>(step),
                                         .loss_factor = 1 / static_cast<float>(shape.tokens())});
    const nn::States& states = replica.states();
    ops->run(ops::Adam{.master = states.master,
                       .gradient = states.gradients,
                       .first_moment = states.first_moment,
                       .second_moment = states.second_moment,
                       .parameter = {},
                       .rate = 1e-2,
                       .step = step});
    ops->synchronize();
    loss = nn::sum_of(losses) / static_cast<double>(shape.tokens());
    if (step == 1) first = loss;
    if (step % 10 == 1 || step == 40) fmt::print("step {:>2}  loss {:.3f}\n", step, loss);
  }
  return loss < first / 2 ? 0 : 1;
}
