// Checkpoints of a run: everything that is needed to go on to the bit.
//
//   <run>/checkpoints/step-00001000/
//     states.safetensors   "<parameter>" f32; "moment/<parameter>", "variance/<parameter>" or
//                          "velocity/<parameter>" f32, where the optimizer has them
//     config.toml          the run's, resolved: its model.* keys describe the model
//     tokenizer.json       where there is one
//     residuals.safetensors  where gradients are compressed with error feedback
//                          (train/checkpoint/residual_exchange.h)
//     manifest.json        step, updates, loss scale, fingerprint of the data, and size and hash
//                          (XXH3, 128 bits) of each of the other files
//
// Where workers shard their states (nn/parameters/sharding.h) each of them writes what it
// holds, all at once, into a file of its own in place of states.safetensors:
//
//     states-00002-of-00004.safetensors   the same tensors, or parts of them: "<parameter>[a:b]"
//                                         are elements a to b-1 (io/parted_safetensors.h)
//
// The folder has to be on storage that all of them see. Its manifest is written when every file is
// on the disk, so nothing counts before all is there. How states are sharded is no part of what
// they are: any number of workers goes on from it, at any stage, and reads only what each will
// hold.
//
// A checkpoint is written into a folder under another name, every file and the folder are synced,
// and then it is renamed: a folder of the name above is complete, or was damaged later. Nothing of
// a run's precision, micro-batch or threads is in the states: parameters by their names in f32.
// Whoever reads or saves also removes what a killed process left half written (io/staged_folder.h).
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

// In a run's folder.
inline constexpr std::string_view kCheckpoints = "checkpoints";

// What goes into a checkpoint besides the replica.
struct CheckpointExtras {
  TrainState state;
  std::string config;     // resolved, as TOML
  std::string tokenizer;  // its json(); empty: none
  std::string data = {};  // data_fingerprint(); empty: not known
};

using Warn = std::function<void(const std::string&)>;

class CheckpointFolder {
 public:
  // `run` is the run's folder. Throws Error(kInvalidArgument) where its checkpoints/ holds what no
  // run of lockstep wrote.
  explicit CheckpointFolder(std::filesystem::path run);

  // Complete by name, the newest first; content not yet checked.
  std::vector<std::int64_t> steps() const;
  std::filesystem::path path(std::int64_t step) const;

  // Saves, in place of one of the same step, then removes what `keep` does not hold on to among
  // those of earlier steps. Throws Error(kSystem) where that fails (a full disk): then the earlier
  // checkpoints are as they were and nothing half written stays.
  void save(const nn::Replica& replica, const CheckpointExtras& extras,
            const CheckpointOptions& keep);
  // The same of flat buffers without a replica; only the master copy has to be there.
  void save(const nn::FlatParameters& flat, const nn::States& states,
            const CheckpointExtras& extras, const CheckpointOptions& keep);

  // The same of workers that shard their states; all of them call it. Where one cannot write
  // its file, nobody has saved: all throw Error(kSystem), which names the rank. What the
  // communicator throws where one of them is gone comes through.
  void save_by_all(const nn::Replica& replica, const CheckpointExtras& extras,
                   const CheckpointOptions& keep, RunGroup group);
  // Whether that can be done: throws Error(kInvalidArgument) at all of them where one does not see
  // what the leader makes in the folder.
  void check_seen_by_all(RunGroup group) const;
  // Removes what `keep` does not hold on to among the checkpoints of `newest` steps and less.
  // Throws Error(kSystem).
  void remove_old(std::int64_t newest, const CheckpointOptions& keep) const;

  // Fills the replica from the newest checkpoint that is whole: every file's hash is checked before
  // anything is used. States that the optimizer keeps and a checkpoint before the first update
  // lacks begin at zero; a loss scale is restored where the replica computes in f16. `warn` hears
  // of each damaged one that was passed over, and why. Nothing where there are none at all. Throws
  // Error(kInvalidArgument) where the model of the checkpoint is another than the replica's, or its
  // optimizer (names what differs), and Error(kProtocol) where there are some but all are damaged:
  // starting again would throw the run away.
  //
  // Workers that shard their states all call it as a `group`. They take the same checkpoint,
  // and each reads what it holds; all throw where one cannot (names rank and file).
  std::optional<TrainState> restore(nn::Replica& replica, const Warn& warn,
                                    RunGroup group = RunGroup(nullptr)) const;
  // The residuals of that checkpoint, which has just been restored; nothing where it has none.
  std::optional<std::filesystem::path> residuals_of(std::int64_t step) const;
  // The fingerprint of the data that it was learned from; empty where an older lockstep wrote it.
  std::string data_of(std::int64_t step) const;

 private:
  friend class UnfinishedCheckpoint;
  // The leader makes a folder that becomes `target`; where that is for this worker.
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
};
Checkpoint open_checkpoint(const std::filesystem::path& run_or_checkpoint, const Warn& warn);
// All its states, whole, from one file or many.
std::unique_ptr<io::TensorSource> open_states(const Checkpoint& checkpoint);
// One of its files other than the states (train/checkpoint/manifest.h has their names), checked by
// its hash; of a run the newest that is whole. The states are not looked at, so that this costs
// nothing. Empty where there is none.
std::string stored_text(const std::filesystem::path& run_or_checkpoint, std::string_view name);
// The parameters alone, into a flat buffer of f32 (nn/parameters/flat_parameters.h).
void read_parameters(const Checkpoint& checkpoint, const nn::FlatParameters& flat,
                     const Tensor& buffer);
// The parameters of one, into what a replica holds of them. By all of a group, as with restore().
void load_checkpoint(const std::filesystem::path& run_or_checkpoint, nn::Replica& replica,
                     const Warn& warn, RunGroup group);

}  // namespace lockstep::train
