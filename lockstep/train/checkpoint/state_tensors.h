// The states of a replica as named tensors of f32: what the files of states of a checkpoint hold
// (train/checkpoint/checkpoint.h).
#pragma once

#include <functional>
#include <vector>

#include "lockstep/io/hashed_file.h"
#include "lockstep/io/parted_safetensors.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/nn/replica/replica.h"

namespace lockstep::train {

// Views of the master copy, and of what the optimizer keeps, in flat buffers that are whole.
std::vector<io::NamedTensor> state_tensors(const nn::FlatParameters& flat,
                                           const nn::States& states);
// Views of what a worker holds of the same. Of what lies in a file they have the type and the shape
// alone, and no elements to be read (write_states() writes them).
std::vector<io::TensorPart> state_parts(const nn::Replica& replica);
// Appends the data of these, wherever it lies, block by block as updates go, and says of each block
// that it has been read. Throws what io::SyncedFile, nn::FlatFileReader and `has_read` throw.
void write_states(const nn::Replica& replica, io::SyncedFile& file,
                  const std::function<void(std::size_t block)>& has_read = {});
// The files, by their index, that hold anything of what a worker does.
std::vector<std::size_t> files_of_parts(const io::PartedSafetensors& files,
                                        const nn::Replica& replica);

// Throws Error(kInvalidArgument) where the file has other parameters, or of other sizes; says
// which.
void check_same_parameters(const io::TensorSource& file, const nn::FlatParameters& flat);

// The parameters of a file into a flat buffer of f32; zero between them. Throws as above.
void read_parameter_tensors(const io::TensorSource& file, const nn::FlatParameters& flat,
                            const Tensor& buffer);
// Into the master copy of a replica, as far as this worker holds it.
void read_parameter_tensors(const io::TensorSource& file, nn::Replica& replica);

// All that the replica has room for and this worker holds, but the copy of the parameters that is
// rounded. States of an optimizer that the file lacks become zero where `fresh` (no parameter was
// updated yet); else they throw Error(kInvalidArgument), and so do those that the replica has no
// room for.
void read_state_tensors(const io::TensorSource& file, nn::Replica& replica, bool fresh);

}  // namespace lockstep::train
