#include "lockstep/nn/generate/sampling.h"

#include "lockstep/nn/parameters/seed.h"

namespace lockstep::nn {

std::uint64_t sampling_seed(std::uint64_t seed) { return seed_for(seed, "sampling"); }

Sampler::Sampler(const SamplingOptions& options)
    : sampler_(options.choice()), seed_(sampling_seed(options.seed)) {}

}  // namespace lockstep::nn
