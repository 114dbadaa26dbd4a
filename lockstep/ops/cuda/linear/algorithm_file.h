// A file that keeps the fastest algorithm of every product from run to run. A line has the key, the
// algorithm in hexadecimal digits and microseconds, separated by tabs.
//
// The file only saves time. Invalid lines are skipped, and a file that cannot be read or written is
// ignored. Several processes may time the same product at once. The first one to write wins, and
// the others use its algorithm, so that all compute the same bits.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::cuda {

struct KeptAlgorithm {
  std::array<std::byte, 64> bytes{};  // cublasLtMatmulAlgo_t
  double microseconds = 0;
};

class AlgorithmFile {
 public:
  // With an empty path nothing is kept.
  explicit AlgorithmFile(std::filesystem::path path);

  std::optional<KeptAlgorithm> find(const std::string& key) const;
  // Stores the algorithm unless another process has stored one first. Returns the one in the file.
  KeptAlgorithm keep(const std::string& key, const KeptAlgorithm& found);

  // XDG_CACHE_HOME/lockstep, or ~/.cache/lockstep, and in it cublaslt-GPU-VERSION.txt; empty where
  // there is no home.
  static std::filesystem::path path_for(std::string_view gpu, std::size_t version);

 private:
  void read();

  std::filesystem::path path_;
  std::map<std::string, KeptAlgorithm> kept_;
};

}  // namespace lockstep::cuda
