// The descriptions, one file for each area of operations.
#pragma once

#include <vector>

#include "lockstep/bench/ops/description.h"

namespace lockstep::bench {

std::vector<OpDescription> describe_linear();
std::vector<OpDescription> describe_elementwise();
std::vector<OpDescription> describe_swiglu();
std::vector<OpDescription> describe_float8();
std::vector<OpDescription> describe_norm();
std::vector<OpDescription> describe_embedding();
std::vector<OpDescription> describe_attention();
std::vector<OpDescription> describe_decode_attention();
std::vector<OpDescription> describe_merge_attention();
std::vector<OpDescription> describe_relative_bias();
std::vector<OpDescription> describe_rotary();
std::vector<OpDescription> describe_routing();
std::vector<OpDescription> describe_loss();
std::vector<OpDescription> describe_optimizer();

}  // namespace lockstep::bench
