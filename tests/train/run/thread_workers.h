// The workers of a run as threads, each with a trainer of its own, and what they end up with.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/native/threads.h"
#include "lockstep/nn/replica/state_stream.h"
#include "lockstep/parallel/make_strategy.h"
#include "lockstep/tensor/host_view.h"
#include "lockstep/train/trainer/trainer.h"
#include "tests/train/trainer/random_sequences.h"

namespace lockstep::train {

// work(trainer, others) by each of options.batch.workers, on options.parallel.device; `others` is
// null where there is one.
template <class Work>
void run_workers(const TrainOptions& options, Work&& work,
                 const CommOptions& comm = comm_options()) {
  const int workers = options.batch.workers;
  run_threads(
      workers,
      [&](Communicator& world) {
        Communicator* others = workers > 1 ? &world : nullptr;
        const auto ops = lockstep::make_ops(options.parallel.device, 1);
        const auto strategy =
            parallel::make_strategy({.options = options.parallel,
                                     .optimizer = options.optimizer,
                                     .most_micro_batches = solved(options.batch).accumulation},
                                    others);
        Trainer trainer(options, *ops, *strategy);
        work(trainer, others);
      },
      comm);
}

// The next steps of a worker in lockstep with the others, all on the same sequences; see(metrics)
// after each.
template <class See>
void run_steps(Trainer& trainer, int steps, See&& see) {
  const BatchChoice batch = solved(trainer.options().batch);
  Sequences sequences(batch.sequences, batch.sequence);
  const auto batches = sequences.batches(batch.micro);
  for (int i = 0; i < steps; ++i) {
    const std::int64_t done = trainer.state().steps;
    const auto share = trainer.strategy().next(step_plan(batch), done, done + 1).value();
    const auto mine = std::span(batches).subspan(static_cast<std::size_t>(share.first_micro_batch),
                                                 static_cast<std::size_t>(share.micro_batches));
    see(trainer.step(mine, share).value());
  }
}

using WholeStates = std::map<std::string, std::vector<float>>;  // by their names in a checkpoint

// What this worker holds, wherever it lies, into what all do.
inline void take_states(nn::Replica& replica, WholeStates& states) {
  nn::StateStream stream(replica, nn::StateAccess::kRead);
  while (stream.next()) {
    const nn::States states_here = stream.states();
    const auto take = [&](const char* kind, const nn::FlatParameter& parameter, std::size_t first,
                          const Tensor& values) {
      if (!ops::is_given(values)) return;
      std::vector<float>& whole = states[kind + parameter.name];
      whole.resize(parameter.shape.elements());
      const HostView here(values);
      std::ranges::copy(here.as<float>(), whole.begin() + static_cast<std::ptrdiff_t>(first));
    };
    nn::for_parameters_in(
        replica.flat(), stream.block(), stream.range(),
        [&](const nn::FlatParameter& parameter, std::size_t first, nn::FlatRange within) {
          const nn::States part = states_here.slice(within);
          take("", parameter, first, part.master);
          take("moment/", parameter, first, part.first_moment);
          take("variance/", parameter, first, part.second_moment);
          take("velocity/", parameter, first, part.velocity);
        });
  }
}

// What a training came to; the same bits or not.
struct Learned {
  std::vector<double> losses;
  std::vector<double> norms;
  WholeStates states;
  friend bool operator==(const Learned&, const Learned&) = default;
};

// `of_states`: the tolerance of states.
inline void expect_near(const Learned& one, const Learned& other, double tolerance,
                        double of_states) {
  ASSERT_EQ(one.losses.size(), other.losses.size());
  for (std::size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_NEAR(one.losses[i], other.losses[i], tolerance) << "step " << i;
    EXPECT_NEAR(one.norms[i], other.norms[i], tolerance * 10) << "step " << i;
  }
  ASSERT_EQ(one.states.size(), other.states.size());
  for (const auto& [name, values] : one.states) {
    ASSERT_EQ(values.size(), other.states.at(name).size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(values[i], other.states.at(name)[i], of_states) << name << i;
    }
  }
}

inline std::string tiers_text(const nn::Tiers& tiers) {
  std::string where = tiers.overlaps ? "" : "one by one: ";
  if (tiers.in_place) where += "in place: ";
  if (tiers.delayed_update) where += "delayed: ";
  for (const Tier tier : {tiers.optimizer, tiers.gradients, tiers.parameters, tiers.activations}) {
    where += std::string(name(tier)) + " ";
  }
  return where;
}

}  // namespace lockstep::train
