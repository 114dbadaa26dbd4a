#include "lockstep/train/run/algorithm_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"

namespace lockstep::train {
namespace {

// "PRODUCT: ALGORITHM (how)" by product, without how.
std::map<std::string_view, std::string_view> algorithms_by_product(std::string_view record) {
  std::map<std::string_view, std::string_view> all;
  while (!record.empty()) {
    const std::string_view line = record.substr(0, record.find('\n'));
    record.remove_prefix(std::min(record.size(), line.size() + 1));
    const std::size_t colon = line.rfind(": ");
    if (colon == std::string_view::npos) continue;
    const std::string_view algorithm = line.substr(colon + 2);
    all.emplace(line.substr(0, colon), algorithm.substr(0, algorithm.find(" (")));
  }
  return all;
}

}  // namespace

AlgorithmRecord::AlgorithmRecord(const std::filesystem::path& run) : file_(file_of(run)) {
  if (std::filesystem::exists(file_)) before_ = read_file(file_);
}

std::string AlgorithmRecord::store(std::string_view chosen) {
  if (chosen.empty() || chosen == stored_) return {};
  stored_ = chosen;
  try {
    write_file(file_, stored_);
  } catch (const Error& error) {
    return fmt::format("the chosen algorithms could not be stored: {}", error.what());
  }
  const int changed = count_changed_algorithms(before_, stored_);
  if (changed == 0 || told_) return {};
  told_ = true;
  return fmt::format(
      "{} matrix product{} here by another algorithm than before this run was resumed ({}), so its "
      "bits may differ from those of a run that was never interrupted",
      changed, changed == 1 ? " runs" : "s run", file_.string());
}

int count_changed_algorithms(std::string_view before, std::string_view now) {
  const auto earlier = algorithms_by_product(before);
  int changed = 0;
  for (const auto& [product, algorithm] : algorithms_by_product(now)) {
    const auto found = earlier.find(product);
    if (found != earlier.end() && found->second != algorithm) ++changed;
  }
  return changed;
}

}  // namespace lockstep::train
