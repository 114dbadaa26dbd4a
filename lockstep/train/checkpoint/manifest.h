// manifest.json of a checkpoint (train/checkpoint/checkpoint.h): its files and their hashes.
//
//   {
//     "format": "lockstep checkpoint",
//     "version": 1,
//     "step": 1000,
//     "updates": 998,
//     "loss_scale": {"scale": 65536.0, "good_steps": 17},     in f16; else null
//     "data": "301,966 tokens with hash ...",                 what was learned from; where it is
//                                                             known (train/dataset/fingerprint.h)
//     "val_loss": 1.5201,                                     of the parameters; where a validation
//                                                             was taken after that step
//     "fingerprint": "32 hexadecimal digits",                 of the parameters that all workers
//                                                             held alike when it was saved; where
//                                                             they were compared
//     "files": {
//       "config.toml": {"bytes": 1234, "xxh3_128": "32 hexadecimal digits"}, ...
//     },
//     "xxh3_128": "32 hexadecimal digits"
//   }
//
// The version is 2 if every worker wrote its own states file, which older versions of lockstep
// cannot read.
//
// The last hash is that of the text before it, so damage to the manifest itself is detected.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/hashed_file.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {

inline constexpr std::string_view kStatesFile = "states.safetensors";
// "states-00002-of-00004.safetensors": that of the second of four workers, which is worker 1.
std::string states_file_of(int worker, int workers);
bool is_states_file(std::string_view name);  // either
inline constexpr std::string_view kConfigFile = "config.toml";
inline constexpr std::string_view kTokenizerFile = "tokenizer.json";
inline constexpr std::string_view kResidualsFile = "residuals.safetensors";
inline constexpr std::string_view kManifestFile = "manifest.json";

struct Manifest {
  TrainState state;
  // By name: states and config always, a tokenizer and residuals where there are any. States are
  // one file, or one of each worker.
  std::map<std::string, io::FileHash, std::less<>> files;
  std::string data = {};         // its fingerprint; empty: not known
  std::string fingerprint = {};  // of the parameters; empty: workers were not compared
  std::optional<double> validation_loss = {};  // finite
};

// Of the files, those of states, in order.
std::vector<std::string> states_files(const Manifest& manifest);

std::string format_manifest(const Manifest& manifest);

// `source` names the text in errors. Throws Error(kProtocol) for damage, and Error(kUnsupported)
// for an unknown version.
Manifest parse_manifest(std::string_view text, std::string_view source);

}  // namespace lockstep::train
