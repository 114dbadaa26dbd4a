// Which algorithm was found to be the fastest for a product, kept in a file from run to run: a line
// each of key, algorithm in hexadecimal digits and microseconds, with tabs between them.
//
// The file only saves time. A line that makes no sense is passed over, a file that cannot be read
// or written is done without. Several processes may find the same out at the same time; the first
// to write has it, and the others take over what it found, so that all compute the same bits.
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
  // An empty path: keeps nothing.
  explicit AlgorithmFile(std::filesystem::path path);

  std::optional<KeptAlgorithm> find(const std::string& key) const;
  // Keeps what was found, and returns what the file has now: what another found before, if it did.
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
