// A folder as Hugging Face transformers writes it, made of a fixture.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "lockstep/base/file/file.h"
#include "lockstep/io/safetensors.h"
#include "tests/paths.h"

namespace lockstep::fixtures {

// The tensors of a model, with the memory that they are views of.
struct ModelTensors {
  std::vector<io::TensorSource::Loaded> memory;
  std::vector<io::NamedTensor> tensors;
};

// The parameters of tests/fixtures/MODEL.safetensors, by their own names.
inline ModelTensors tensors_of_fixture(const std::string& model) {
  constexpr std::string_view kPrefix = "parameter.";
  const io::SafetensorsFile file(in_sources("tests/fixtures/") + model + ".safetensors");
  ModelTensors result;
  for (const auto& entry : file.entries()) {
    if (!entry.name.starts_with(kPrefix)) continue;
    result.memory.push_back(file.load(entry.name));
    result.tensors.push_back({entry.name.substr(kPrefix.size()), result.memory.back().tensor});
  }
  return result;
}

inline std::string config_of_fixture(const std::string& model) {
  return read_file(in_sources("tests/fixtures/") + model + ".config.json");
}

inline void write_model_folder(const std::filesystem::path& folder, const std::string& model) {
  std::filesystem::create_directories(folder);
  write_file(folder / "config.json", config_of_fixture(model));
  io::write_safetensors(folder / "model.safetensors", tensors_of_fixture(model).tensors,
                        {{"format", "pt"}});
}

}  // namespace lockstep::fixtures
