// lockstep inspect of runs, checkpoints and models.
#pragma once

#include <filesystem>

namespace lockstep::cli {

struct InspectOptions {
  bool config = false;  // print the configuration, too
};

// Inspects a run's folder or one checkpoint. Reports damage and returns false for it.
bool inspect_checkpoint(const std::filesystem::path& path, const InspectOptions& options);

// Each prints what there is, or throws what opening it throws.
void inspect_safetensors(const std::filesystem::path& file);
void inspect_hugging_face(const std::filesystem::path& folder);

}  // namespace lockstep::cli
