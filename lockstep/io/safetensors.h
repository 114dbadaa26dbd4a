// Reads and writes safetensors files.
//
//   +----------+----------------------------+------------------------------------+
//   | 8 bytes  | header: JSON, N bytes      | data                               |
//   | N, little| {"name": {"dtype": "F32",  | elements, little-endian, row by    |
//   | endian   |   "shape": [2, 3],         | row; tensors one after the other,  |
//   |          |   "data_offsets": [0, 24]}}| without holes between them         |
//   +----------+----------------------------+------------------------------------+
//
// Offsets count from the start of the data. The key "__metadata__" holds texts by name.
//
// Files are validated: opening an invalid one (truncated, overlapping, with holes, with sizes that
// do not match shape and type, or with an invalid header) throws Error(kProtocol) with the file and
// the tensor, before anything is read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::io {

struct TensorEntry {
  std::string name;
  std::string type;            // as the file calls it: "F32", "BOOL"
  std::optional<DType> dtype;  // nothing: one that lockstep does not have
  Shape shape;
  std::size_t begin = 0;  // offset of its first byte in the data
  std::size_t bytes = 0;
};

// Tensors by name, of one file or many, read on demand into the caller's memory. Thread-safe.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // Its name in errors.
  virtual std::string text() const = 0;
  virtual std::vector<std::string_view> names() const = 0;
  // nullptr if there is none of that name.
  virtual const TensorEntry* find(std::string_view name) const = 0;
  // Fills `to` with elements of the tensor from `first` on, in row-major order. Throws
  // Error(kInvalidArgument) if the type differs or the elements do not exist, and
  // Error(kUnsupported) for an entry without a dtype.
  virtual void read_part(std::string_view name, std::size_t first, const Tensor& to) const = 0;

  // All of a tensor, of which `to` has the type and the number of elements; shapes may differ.
  // Throws as above.
  void read(std::string_view name, const Tensor& to) const;
  // Throws Error(kInvalidArgument) with the nearest name.
  const TensorEntry& at(std::string_view name) const;
  // `tensor` is a view of `memory`.
  struct Loaded {
    Buffer memory;
    Tensor tensor;
  };
  Loaded load(std::string_view name) const;

 protected:
  // The entry, where read_part() of it can be done; throws what that throws.
  const TensorEntry& check_part(std::string_view name, std::size_t first, const Tensor& to) const;
};

// An open file.
class SafetensorsFile : public TensorSource {
 public:
  using Entry = TensorEntry;

  explicit SafetensorsFile(const std::filesystem::path& path);

  // In the order of the data.
  std::span<const Entry> entries() const { return entries_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

  std::string text() const override { return path_.string(); }
  std::vector<std::string_view> names() const override;
  const Entry* find(std::string_view name) const override;
  void read_part(std::string_view name, std::size_t first, const Tensor& to) const override;

 private:
  std::filesystem::path path_;
  UniqueFd file_;
  std::size_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;  // on the CPU
};

// The parts of a file to write: the header, then the data of the tensors in this order. The widest
// elements come first, so that all are aligned in the file. Throws Error(kInvalidArgument) for a
// duplicate name.
struct SafetensorsParts {
  std::string header;
  std::vector<Tensor> data;
};
SafetensorsParts safetensors_parts(std::span<const NamedTensor> tensors,
                                   const std::map<std::string, std::string>& metadata = {});

// Writes the tensors to a file, atomically (base/file/file.h).
void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace lockstep::io
