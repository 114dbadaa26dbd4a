// A scratch folder with what tests do in one.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"

namespace lockstep::fixtures {

class TemporaryFolder : public ScratchFolder {
 public:
  std::filesystem::path operator/(std::string_view name) const { return path() / name; }

  std::filesystem::path put(std::string_view name, std::string_view bytes) const {
    const std::filesystem::path file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }

  // The names in it, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path())) {
      names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static std::string bytes_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

}  // namespace lockstep::fixtures
