// The algorithms that a GPU's operations chose by time, stored with the run: algorithms.txt in its
// folder. With others a run would have other bits, so a resumed run says where it chose
// differently.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace lockstep::train {

class AlgorithmRecord {
 public:
  // Reads what the run stored when it was last started, if anything.
  explicit AlgorithmRecord(const std::filesystem::path& run);

  // Stores the choices so far (Ops::chosen_algorithms()) where there are new ones; a CPU makes
  // none. Returns what people should know, if anything: that choices differ from the stored ones,
  // or that these could not be stored.
  std::string store(std::string_view chosen);

  static std::filesystem::path file_of(const std::filesystem::path& run) {
    return run / "algorithms.txt";
  }

 private:
  std::filesystem::path file_;
  std::string before_;  // as it was when the run was started
  std::string stored_;
  bool told_ = false;
};

// Products that two records have both, with different algorithms; times do not count.
int count_changed_algorithms(std::string_view before, std::string_view now);

}  // namespace lockstep::train
