// Checkpoints of a run: everything that is needed to resume bit for bit.
//
//   <run>/checkpoints/step-00001000/
//     states.safetensors   "<parameter>", and the optimizer's states: "moment/<parameter>" (first
//                          moment) and "variance/<parameter>" (second moment), or
//                          "velocity/<parameter>"; with two versions of the weights
//                          "previous/<parameter>", those before the latest update; all f32
//     config.toml          the run's, resolved: its model.* keys describe the model
//     tokenizer.json       where there is one
//     residuals.safetensors  where gradients are compressed with error feedback
//                          (train/checkpoint/residual_exchange.h)
//     manifest.json        step, updates, loss scale, fingerprint of the data, and size and hash
//                          (XXH3, 128 bits) of each of the other files
//
// Where workers shard their states (nn/parameters/sharding.h, nn/tensor_shard.h) each of them
// writes what it holds, all at once, into a file of its own in place of states.safetensors:
//
//     states-00002-of-00004.safetensors   the same tensors, or parts of them: "<parameter>[a:b]"
//                                         are elements a to b-1 (io/parted_safetensors.h)
//
// The folder must be on storage that all ranks share. The manifest is written when every file is on
// the disk, so an incomplete checkpoint is never used. The sharding is not part of the states: any
// number of workers, at any stage, can resume from it, and each reads only its shards.
//
// A checkpoint is written into a folder under another name, every file and the folder are synced,
// and then it is renamed: a folder of the name above is complete, or was damaged later. The states
// do not depend on precision, micro-batch or threads: they are f32, by the names of parameters.
// Reading and saving also removes what a killed process left incomplete (io/staged_folder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config/config.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/safetensors.h"
#include "lockstep/io/staged_folder.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/train/options/checkpoint_options.h"
#include "lockstep/train/trainer/run_group.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

// The name of the folder in a run's folder.
inline constexpr std::string_view kCheckpoints = "checkpoints";

// The content of a checkpoint besides the replica.
struct CheckpointExtras {
  TrainState state;
  std::string config;            // resolved, as TOML
  std::string tokenizer;         // its json(); empty: none
  std::string data = {};         // data_fingerprint(); empty: not known
  std::string fingerprint = {};  // Strategy::compare_workers() when it was saved
  // Of these parameters, where a validation was taken. A value that is not finite is not saved.
  std::optional<double> validation_loss = {};
};

using Warn = std::function<void(const std::string&)>;

class CheckpointFolder {
 public:
  // `run` is the run's folder. Throws Error(kInvalidArgument) if its checkpoints/ holds files that
  // lockstep did not write.
  explicit CheckpointFolder(std::filesystem::path run);

  // The steps of checkpoints, newest first; their content is not checked.
  std::vector<std::int64_t> steps() const;
  std::filesystem::path path(std::int64_t step) const;

  // Saves a checkpoint, replacing one of the same step, then removes earlier ones that `keep` does
  // not keep. Throws Error(kSystem) on failure (a full disk); then earlier checkpoints are
  // unchanged and nothing incomplete is left.
  void save(const nn::Replica& replica, const CheckpointExtras& extras,
            const CheckpointOptions& keep);
  // The same for flat buffers without a replica; only the master copy is required.
  void save(const nn::FlatParameters& flat, const nn::States& states,
            const CheckpointExtras& extras, const CheckpointOptions& keep);

  // The same for workers with sharded states; all of them call it. If one cannot write its file,
  // nothing is saved, and all throw Error(kSystem) with the rank. Errors of the communicator are
  // passed on.
  void save_by_all(const nn::Replica& replica, const CheckpointExtras& extras,
                   const CheckpointOptions& keep, RunGroup group);
  // Checks that all workers share the folder: throws Error(kInvalidArgument) on all of them if one
  // does not see what the leader creates.
  void check_seen_by_all(RunGroup group) const;
  // Removes what `keep` does not hold on to among the checkpoints of `newest` steps and less.
  // Throws Error(kSystem).
  void remove_old(std::int64_t newest, const CheckpointOptions& keep) const;

  // Restores the replica from the newest undamaged checkpoint; all hashes are checked before
  // anything is used. Optimizer states that a checkpoint before the first update lacks start at
  // zero; a loss scale is restored if the replica computes in f16. `warn` is called for each
  // damaged checkpoint that was skipped. Nothing if there is no checkpoint. Throws
  // Error(kInvalidArgument), with the difference, if model or optimizer differ from the replica's,
  // and Error(kProtocol) if all checkpoints are damaged: starting again would discard the run.
  //
  // Workers with sharded states call it as a `group`. They use the same checkpoint, and each reads
  // its shards; all throw, with rank and file, if one cannot.
  std::optional<TrainState> restore(nn::Replica& replica, const Warn& warn,
                                    RunGroup group = RunGroup(nullptr)) const;
  // The residuals of that checkpoint, which has just been restored; nothing where it has none.
  std::optional<std::filesystem::path> residuals_of(std::int64_t step) const;
  // The fingerprint of its training data; empty if an older lockstep wrote it.
  std::string data_of(std::int64_t step) const;
  // The step of the newest checkpoint that was saved after its workers were found to be equal.
  std::optional<std::int64_t> newest_compared() const;

  // A checkpoint with the validation loss of its parameters.
  struct Validated {
    std::int64_t step = 0;
    double loss = 0;
  };
  // Those that were saved with one, the lowest loss first; of equal losses the earlier step. The
  // first one is the best checkpoint of the run: nothing else marks it, so no crash between two
  // steps can leave a mark that is wrong. Manifests that are damaged, or removed meanwhile, are
  // left out.
  std::vector<Validated> by_validation() const;

 private:
  friend class UnfinishedCheckpoint;
  // The leader makes a folder that becomes `target`; returns its path for this worker.
  std::filesystem::path stage_by_all(const std::filesystem::path& target, RunGroup group,
                                     std::optional<io::StagedFolder>& staged) const;

  std::filesystem::path run_;
};

// One checkpoint folder, or the newest whole one of a run's folder, checked. Throws
// Error(kInvalidArgument) for a folder that is neither, and Error(kProtocol) for damage.
struct Checkpoint {
  std::filesystem::path folder;
  TrainState state;
  std::string config;
  std::string tokenizer;                                    // JSON; empty: none
  std::map<std::string, io::FileHash, std::less<>> states;  // its files of states, by name
  std::string id;                                           // the hash of its manifest
  std::optional<double> validation_loss = {};               // of its parameters, where it is known
};
Checkpoint open_checkpoint(const std::filesystem::path& run_or_checkpoint, const Warn& warn);
// The path to give to open_checkpoint() and others for what a user asks for: "newest" is `path`
// itself, "best" the checkpoint of a run with the lowest validation loss, a number the checkpoint
// of that step. Throws Error(kInvalidArgument) where the run has no such checkpoint, with those
// that it has, and for "best" and numbers of a path that is no run.
std::filesystem::path choose_checkpoint(const std::filesystem::path& path, std::string_view which);
// All its states, from one file or many.
std::unique_ptr<io::TensorSource> open_states(const Checkpoint& checkpoint);
// The content of one file other than the states (named in train/checkpoint/manifest.h), checked by
// its hash; of a run, from the newest valid checkpoint. The states are not read, so this is cheap.
// Empty if there is none.
std::string stored_text(const std::filesystem::path& run_or_checkpoint, std::string_view name);
// The parameters alone, into a flat buffer of f32 (nn/parameters/flat_parameters.h).
void read_parameters(const Checkpoint& checkpoint, const nn::FlatParameters& flat,
                     const Tensor& buffer);
// Loads the parameters of a checkpoint into a replica's shards. Called by all of a group, like
// restore().
void load_checkpoint(const std::filesystem::path& run_or_checkpoint, nn::Replica& replica,
                     const Warn& warn, RunGroup group);

}  // namespace lockstep::train
