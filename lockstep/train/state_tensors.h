// The states of a replica as named tensors of f32: what states.safetensors of a checkpoint holds
// (train/checkpoint.h).
#pragma once

#include <vector>

#include "lockstep/io/safetensors.h"
#include "lockstep/nn/flat_parameters.h"
#include "lockstep/nn/replica.h"

namespace lockstep::train {

// Views of the master copy, and of what the optimizer keeps.
std::vector<io::NamedTensor> state_tensors(const nn::FlatParameters& flat,
                                           const nn::States& states);

// Throws Error(kInvalidArgument) where the file has other parameters, or of other sizes; says
// which.
void check_same_parameters(const io::SafetensorsFile& file, const nn::FlatParameters& flat);

// The parameters of a file into a row of f32; zero between them. Throws as above.
void read_parameter_tensors(const io::SafetensorsFile& file, const nn::FlatParameters& flat,
                            const Tensor& row);

// All that the states have room for, but the copy of the parameters that is rounded. States of an
// optimizer that the file lacks become zero where `fresh` (no parameter was updated yet); else they
// throw Error(kInvalidArgument), and so do those that the states have no room for.
void read_state_tensors(const io::SafetensorsFile& file, const nn::FlatParameters& flat,
                        const nn::States& states, bool fresh);

}  // namespace lockstep::train
