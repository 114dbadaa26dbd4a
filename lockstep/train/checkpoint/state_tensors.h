// The states of a replica as named f32 tensors, as in the states files of a checkpoint
// (train/checkpoint/checkpoint.h).
#pragma once

#include <functional>
#include <vector>

#include "lockstep/io/hashed_file.h"
#include "lockstep/io/parted_safetensors.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/nn/parameters/flat_parameters.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/train/checkpoint/state_snapshot.h"

namespace lockstep::train {

// Whether every worker holds, reads and writes states of its own.
inline bool shards_states(const nn::Replica& replica) {
  return replica.plan().sharding.any() || replica.tensor_group().size > 1 ||
         replica.model().stages() > 1 || replica.flat().expert_group().size > 1;
}

// Views of the master copy and the optimizer states in unsharded flat buffers.
std::vector<io::NamedTensor> state_tensors(const nn::FlatParameters& flat,
                                           const nn::States& states);
// Views of the shards of these that a worker writes: of what several workers hold, one of them
// does. For states in a file they have only type and shape, without elements (write_states() writes
// them).
std::vector<io::TensorPart> state_parts(const nn::Replica& replica);
// Appends the data of state_parts(), from any tier, block by block in the order of updates, and
// reports each block as read. With a snapshot all of them are read at the beginning. Throws what
// io::SyncedFile, nn::FlatFileReader and `has_read` throw.
void write_states(const nn::Replica& replica, io::SyncedFile& file,
                  const std::function<void(std::size_t block)>& has_read = {},
                  StateSnapshot* snapshot = nullptr);
// The indices of the files that hold any of a worker's shards.
std::vector<std::size_t> files_of_parts(const io::PartedSafetensors& files,
                                        const nn::Replica& replica);

// Throws Error(kInvalidArgument), with the differences, if the file has other parameters or other
// sizes.
void check_same_parameters(const io::TensorSource& file, const nn::FlatParameters& flat);

// The parameters of a file into a flat buffer of f32; zero between them. Throws as above.
void read_parameter_tensors(const io::TensorSource& file, const nn::FlatParameters& flat,
                            const Tensor& buffer);
// Into the master copy of a replica, as far as this worker holds it.
void read_parameter_tensors(const io::TensorSource& file, nn::Replica& replica);

// Reads all states of this worker's shards, except the rounded copy of parameters. Optimizer states
// that the file lacks become zero if `fresh` (no update was made yet); otherwise missing or extra
// states throw Error(kInvalidArgument).
void read_state_tensors(const io::TensorSource& file, nn::Replica& replica, bool fresh);

}  // namespace lockstep::train
