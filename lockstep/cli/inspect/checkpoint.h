// What lockstep inspect says of models on disk.
#pragma once

#include <filesystem>

namespace lockstep::cli {

struct InspectOptions {
  bool config = false;  // print the configuration, too
};

// A run's folder or one checkpoint. False where something of it is damaged, which is said.
bool inspect_checkpoint(const std::filesystem::path& path, const InspectOptions& options);

// Each prints what there is, or throws what opening it throws.
void inspect_safetensors(const std::filesystem::path& file);
void inspect_hugging_face(const std::filesystem::path& folder);

}  // namespace lockstep::cli
