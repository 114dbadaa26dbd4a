// Checkpoints of a run: everything that is needed to go on to the bit.
//
//   <run>/checkpoints/step-00001000/
//     states.safetensors   "<parameter>" f32; "moment/<parameter>", "variance/<parameter>" or
//                          "velocity/<parameter>" f32, where the optimizer has them
//     config.toml          the run's, resolved: its model.* keys describe the model
//     tokenizer.json       where there is one
//     residuals.safetensors  where gradients are compressed with error feedback
//                          (train/residual_exchange.h)
//     manifest.json        step, updates, loss scale, and size and hash (XXH3, 128 bits) of each of
//                          the other files
//
// A checkpoint is written into a folder under another name, every file and the folder are synced,
// and then it is renamed: a folder of the name above is complete, or was damaged later. Nothing of
// a run's precision, micro-batch or threads is in the states: parameters by their names in f32.
// Whoever reads or saves also removes what a killed process left half written (io/staged_folder.h).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/config.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/nn/replica.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {

struct CheckpointOptions {
  int every = 1000;    // steps; 0: only at the end, and when the run is interrupted
  int keep_last = 2;   // the newest so many stay
  int keep_every = 0;  // those of steps that this divides stay for good; 0: none
};
// Declares the keys checkpoint.*.
void bind(Config& config, CheckpointOptions& options);

// What goes into a checkpoint besides the replica.
struct CheckpointExtras {
  TrainState state;
  std::string config;     // resolved, as TOML
  std::string tokenizer;  // its json(); empty: none
  // Writes kResidualsFile, where there are any.
  std::function<io::FileHash(const std::filesystem::path& file)> write_residuals = {};
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
  // The same of rows without a replica; only the master copy has to be there.
  void save(const nn::FlatParameters& flat, const nn::States& states,
            const CheckpointExtras& extras, const CheckpointOptions& keep);

  // Fills the replica from the newest checkpoint that is whole: every file's hash is checked before
  // anything is used. States that the optimizer keeps and a checkpoint before the first update
  // lacks begin at zero; a loss scale is restored where the replica computes in f16. `warn` hears
  // of each damaged one that was passed over, and why. Nothing where there are none at all. Throws
  // Error(kInvalidArgument) where the model of the checkpoint is another than the replica's, or its
  // optimizer (names what differs), and Error(kProtocol) where there are some but all are damaged:
  // beginning anew would throw the run away.
  std::optional<TrainState> restore(nn::Replica& replica, const Warn& warn) const;
  // The residuals of that checkpoint, which has just been restored; nothing where it has none.
  std::optional<std::filesystem::path> residuals_of(std::int64_t step) const;

 private:
  std::filesystem::path run_;
};

// One checkpoint folder, or the newest whole one of a run's folder, checked. Throws
// Error(kInvalidArgument) for a folder that is neither, and Error(kProtocol) for damage.
struct Checkpoint {
  std::filesystem::path folder;
  TrainState state;
  std::string config;
  std::string tokenizer;  // JSON; empty: none
};
Checkpoint open_checkpoint(const std::filesystem::path& run_or_checkpoint, const Warn& warn);
// One of its files other than the states (train/manifest.h has their names), checked by its hash;
// of a run the newest that is whole. The states are not looked at, so that this costs nothing.
// Empty where there is none.
std::string stored_text(const std::filesystem::path& run_or_checkpoint, std::string_view name);
// The parameters alone, into a row of f32 (nn/flat_parameters.h).
void read_parameters(const Checkpoint& checkpoint, const nn::FlatParameters& flat,
                     const Tensor& row);

}  // namespace lockstep::train
