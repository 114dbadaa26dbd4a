#include "lockstep/io/sharded_safetensors.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/io/hashed_file.h"
#include "lockstep/io/safetensors_header.h"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;
// Sorted by name: an ordered_json would look through all names for each new one.
using Json = nlohmann::json;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// As the field writes them; libraries ask for this one.
const std::map<std::string, std::string, std::less<>> kFormatMetadata = {{"format", "pt"}};

[[noreturn]] void reject_index(const fs::path& index, std::string_view why) {
  fail(ErrorCode::kProtocol, "{} is not a valid index: {}", index.string(), why);
}

// Tensor and file, as the index has them.
std::map<std::string, std::string> read_index(const fs::path& index) {
  std::map<std::string, std::string> files;
  Json json;
  try {
    json = Json::parse(read_file(index));
  } catch (const Json::exception& error) {
    reject_index(index, error.what());
  }
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    reject_index(index, "it has no object 'weight_map'");
  }
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string())
      reject_index(index, fmt::format("the file of '{}' is not a string", name));
    const fs::path path(file.get<std::string>());
    if (path.empty() || path.filename() != path || path == "." || path == "..") {
      reject_index(index, fmt::format("it places '{}' in '{}', which is not a file of this folder",
                                      name, path.string()));
    }
    files[name] = path.string();
  }
  return files;
}

struct Shard {
  std::size_t first = 0;
  std::size_t count = 0;
  std::size_t bytes = 0;
};

std::vector<Shard> shards_of(std::span<const PendingTensor> tensors, std::size_t most) {
  std::vector<Shard> shards(1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::size_t bytes = tensors[i].bytes();
    if (shards.back().count > 0 && shards.back().bytes + bytes > most) {
      shards.push_back({.first = i, .count = 0, .bytes = 0});
    }
    ++shards.back().count;
    shards.back().bytes += bytes;
  }
  return shards;
}

std::string header_of(std::span<const PendingTensor> tensors) {
  SafetensorsHeader header;
  header.metadata = kFormatMetadata;
  std::size_t end = 0;
  for (const PendingTensor& one : tensors) {
    header.entries.push_back({.name = one.name,
                              .type = std::string(safetensors_type(one.dtype)),
                              .dtype = one.dtype,
                              .shape = one.shape,
                              .begin = end,
                              .bytes = one.bytes()});
    end += one.bytes();
  }
  return format_header(header);
}

}  // namespace

ShardedSafetensors::ShardedSafetensors(const fs::path& folder) : folder_(folder) {
  std::error_code none;
  if (fs::exists(folder / kIndex, none)) {
    open_shards(folder / kIndex);
  } else if (fs::exists(folder / kSingle, none)) {
    files_.push_back(std::make_unique<SafetensorsFile>(folder / kSingle));
    for (const TensorEntry& entry : files_.back()->entries()) {
      by_name_[entry.name] = files_.back().get();
    }
  } else {
    fail(ErrorCode::kInvalidArgument, "{} has neither {} nor {}", folder.string(), kSingle, kIndex);
  }
}

void ShardedSafetensors::open_shards(const fs::path& index) {
  std::map<std::string, const SafetensorsFile*> opened;
  for (const auto& [name, file] : read_index(index)) {
    const SafetensorsFile*& shard = opened[file];
    if (shard == nullptr) {
      files_.push_back(std::make_unique<SafetensorsFile>(folder_ / file));
      shard = files_.back().get();
    }
    if (shard->find(name) == nullptr) {
      reject_index(index,
                   fmt::format("it places '{}' in {}, which has no such tensor", name, file));
    }
    by_name_[name] = shard;
  }
}

std::vector<std::string_view> ShardedSafetensors::names() const {
  std::vector<std::string_view> names;
  for (const auto& [name, file] : by_name_) names.push_back(name);
  return names;
}

const TensorEntry* ShardedSafetensors::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second->find(name);
}

void ShardedSafetensors::read_part(std::string_view name, std::size_t first,
                                   const Tensor& to) const {
  at(name);  // throws with the nearest name
  by_name_.find(name)->second->read_part(name, first, to);
}

void write_sharded(const fs::path& folder, std::span<const PendingTensor> tensors,
                   std::size_t shard_bytes,
                   const std::function<void(std::size_t, const Tensor&)>& fill) {
  const std::vector<Shard> shards = shards_of(tensors, shard_bytes);
  Json weight_map = Json::object();
  std::size_t total = 0;
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const Shard& shard = shards[s];
    const std::string name =
        shards.size() == 1 ? kSingle
                           : fmt::format("model-{:05}-of-{:05}.safetensors", s + 1, shards.size());
    SyncedFile file(folder / name);
    file.write(header_of(tensors.subspan(shard.first, shard.count)));
    for (std::size_t i = shard.first; i < shard.first + shard.count; ++i) {
      const Buffer memory(tensors[i].bytes());
      const Tensor tensor = memory.tensor(tensors[i].dtype, tensors[i].shape);
      fill(i, tensor);
      file.write(tensor);
      weight_map[tensors[i].name] = name;
    }
    file.finish();
    total += shard.bytes;
  }
  if (shards.size() == 1) return;
  const Json index{{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  write_synced(folder / kIndex, index.dump(2) + "\n");
}

}  // namespace lockstep::io
