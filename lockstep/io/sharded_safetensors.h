// A model's tensors in a folder: in model.safetensors, or divided between several files.
//
//   model.safetensors.index.json     {"metadata": {"total_size": bytes of all tensors},
//   model-00001-of-00002.safetensors  "weight_map": {name of a tensor: name of its file}}
//   model-00002-of-00002.safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/safetensors.h"

namespace lockstep::io {

// The files of a folder as one source. Throws Error(kProtocol) for an invalid index, one that names
// something other than a plain file of the folder, or tensors that its files lack; and
// Error(kInvalidArgument) if the folder has neither an index nor model.safetensors.
class ShardedSafetensors : public TensorSource {
 public:
  explicit ShardedSafetensors(const std::filesystem::path& folder);

  std::string text() const override { return folder_.string(); }
  std::vector<std::string_view> names() const override;
  const TensorEntry* find(std::string_view name) const override;
  void read_part(std::string_view name, std::size_t first, const Tensor& to) const override;

 private:
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsFile*, std::less<>> by_name_;
};

// A tensor that is computed just before it is written.
struct PendingTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::size_t bytes() const { return Tensor::bytes_of(dtype, shape); }
};

// Writes tensors into a folder, which has none of these files yet: one file where they have at most
// `shard_bytes` together, else several with an index. A file is closed before the tensor that would
// make it larger. `fill(i, to)` makes the i-th, in order. Content is on the disk on return, names
// after sync_folder() (io/hashed_file.h). Throws Error(kSystem).
void write_sharded(const std::filesystem::path& folder, std::span<const PendingTensor> tensors,
                   std::size_t shard_bytes,
                   const std::function<void(std::size_t index, const Tensor& to)>& fill);

}  // namespace lockstep::io
