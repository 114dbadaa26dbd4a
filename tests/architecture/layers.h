// The order of the layers, and the check that no include runs up.
//
// A *place* is a folder under lockstep/. Places stand on *levels*. A file may include files of its
// own place, of every lower level, and of other places on its own level as long as these do not use
// it in turn.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/architecture/source_file.h"

namespace lockstep::architecture {

using Level = std::vector<std::string_view>;

// From the top to the ground. The one statement of the order.
inline const std::vector<Level>& levels() {
  static const std::vector<Level> kLevels = {
      {"cli/inspect"},
      {"cli/bench", "cli/explain", "cli/plan"},
      {"cli"},

      {"bench/zero"},
      {"bench/data_parallel", "bench/device_collectives", "bench/generate", "bench/live",
       "bench/offload", "bench/tokenize"},
      {"bench/ops", "bench/train"},
      {"bench/collectives"},
      {"bench"},

      {"live"},

      {"train/evaluate"},
      {"train/run"},
      {"train/generate"},
      {"train/model_io", "train/observe/report"},
      {"train/checkpoint", "train/dataset", "train/observe"},
      {"train/trainer"},
      {"train/memory"},
      {"train/options"},
      {"train"},

      {"launch"},

      {"parallel"},
      {"parallel/server"},
      {"parallel/server/service", "parallel/server/worker"},
      {"parallel/server/wire"},
      {"parallel/ddp", "parallel/zero", "parallel/server/slices"},
      {"parallel/offload"},
      {"parallel/strategy"},
      {"parallel/trace"},
      {"parallel/compression/cuda"},
      {"parallel/communication", "parallel/compression", "parallel/gradients"},
      {"parallel/compression/kernels"},

      {"nn/hugging_face"},
      {"nn/models"},
      {"nn/blocks"},
      {"nn/parts"},
      {"nn/generate"},
      {"nn/replica"},
      {"nn/memory"},
      {"nn/parameters"},
      {"nn"},

      {"optim"},
      {"plan/mesh", "plan/pipeline"},
      {"plan"},

      {"ops/cpu", "ops/cuda"},
      {"ops/cpu/attention", "ops/cpu/linear", "ops/cuda/attention", "ops/cuda/linear"},
      {"ops/cpu/gemm/backend", "ops/cpu/gemm/few_rows", "ops/cpu/gemm/tiles"},
      {"ops/cpu/embedding", "ops/cpu/gemm", "ops/cpu/norm"},
      {"ops/cpu/elementwise", "ops/cpu/loss", "ops/cpu/optimizer"},
      {"ops/cuda/float8"},
      {"ops/cuda/elementwise", "ops/cuda/embedding", "ops/cuda/loss", "ops/cuda/norm",
       "ops/cuda/optimizer", "ops/cuda/routing", "ops/cuda/sample"},
      {"ops/cuda/device"},
      {"ops/cpu/team", "ops/check", "ops/reference"},
      {"ops"},

      {"io"},

      {"data/token_file"},
      {"data/text", "data/tokenizers"},
      {"data/tokenizer"},
      {"data/unicode"},
      {"data"},

      {"comm/nccl"},
      {"comm/cuda"},
      {"comm/hierarchical"},
      {"comm/native", "comm/mpi/backend"},
      {"comm/mpi"},
      {"comm/reduce", "comm/schedule", "comm/shared", "comm/rendezvous", "comm/transport"},
      {"comm"},

      {"tensor/cuda"},
      {"tensor"},

      {"base/net", "base/simd"},
      {"base/config", "base/file", "base/system"},
      {"base/text"},
      {"base/math"},
      {"base"},
  };
  return kLevels;
}

struct Place {
  std::string_view name;
  std::size_t level;  // 0 is the top
};

// The place of "lockstep/comm/native/fabric.h"; nothing when the order does not say. A folder with
// places inside has no other folders: a new one has to be given its level.
inline std::optional<Place> place_of(std::string_view path) {
  constexpr std::string_view kRoot = "lockstep/";
  if (!path.starts_with(kRoot)) return std::nullopt;
  path.remove_prefix(kRoot.size());
  std::optional<Place> found;
  for (std::size_t level = 0; level < levels().size(); ++level) {
    for (const std::string_view name : levels()[level]) {
      const bool inside = path.starts_with(std::string(name) + '/');
      if (inside && (!found || name.size() > found->name.size())) found = Place{name, level};
    }
  }
  if (!found) return std::nullopt;
  bool has_places_inside = false;
  for (const Level& level : levels()) {
    for (const std::string_view name : level) {
      has_places_inside |= name.starts_with(std::string(found->name) + '/');
    }
  }
  const bool in_a_folder_of_it = path.find('/', found->name.size() + 1) != std::string_view::npos;
  if (has_places_inside && in_a_folder_of_it) return std::nullopt;
  return found;
}

// One sentence for every file without a place, include that runs up, and circle on a level.
inline std::vector<std::string> layer_violations(const std::vector<SourceFile>& files) {
  std::vector<std::string> violations;
  std::map<std::string_view, std::set<std::string_view>> uses;  // on the same level
  for (const SourceFile& file : files) {
    if (!file.path.starts_with("lockstep/")) continue;
    const auto from = place_of(file.path);
    if (!from) {
      violations.push_back(file.path + " has no place in the order of the layers");
      continue;
    }
    for (const std::string& include : quoted_includes(file)) {
      const auto to = place_of(include);
      if (!to) {
        violations.push_back(file.path + " includes " + include + ", which has no place");
      } else if (to->level < from->level) {
        violations.push_back(file.path + " includes " + include + ", which is above it");
      } else if (to->level == from->level && to->name != from->name) {
        uses[from->name].insert(to->name);
      }
    }
  }
  const auto reaches = [&](std::string_view from, std::string_view to) {
    std::set<std::string_view> seen;
    std::vector<std::string_view> open = {from};
    while (!open.empty()) {
      const std::string_view place = open.back();
      open.pop_back();
      for (const std::string_view next : uses[place]) {
        if (next == to) return true;
        if (seen.insert(next).second) open.push_back(next);
      }
    }
    return false;
  };
  std::vector<std::string_view> places;
  for (const auto& [place, used] : uses) places.push_back(place);
  for (const std::string_view place : places) {
    if (reaches(place, place)) {
      violations.push_back("lockstep/" + std::string(place) + " uses itself in a circle");
    }
  }
  return violations;
}

}  // namespace lockstep::architecture
