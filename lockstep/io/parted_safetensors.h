// Tensors that are divided between several files.
//
// A part is a range of elements in row-major order. In its file it has one dimension, a name that
// says which elements, and the whole shape among the metadata:
//
//   "up.weight[1024:2048]"     the elements 1024 to 2047 of "up.weight"
//   {"up.weight": "64,32"}     metadata: of 64 rows of 32
//
// A tensor that is complete in one file has its plain name and shape.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/io/safetensors.h"

namespace lockstep::io {

// The part of a tensor in one file.
struct TensorPart {
  std::string name;  // of the whole
  Shape shape;       // of the whole
  std::size_t first = 0;
  Tensor elements;  // on the CPU
};

// One such file.
SafetensorsParts parted_safetensors(std::span<const TensorPart> parts);

// Several files as one source of whole tensors. Throws Error(kProtocol) unless the parts of every
// tensor cover each element exactly once.
class PartedSafetensors : public TensorSource {
 public:
  PartedSafetensors(const std::filesystem::path& folder, std::span<const std::string> files);

  std::string text() const override { return folder_.string(); }
  std::vector<std::string_view> names() const override;  // in their own order
  const TensorEntry* find(std::string_view name) const override;
  void read_part(std::string_view name, std::size_t first, const Tensor& to) const override;

  // The indices of the files that hold any of these elements of a tensor.
  std::vector<std::size_t> files_of(std::string_view name, std::size_t first,
                                    std::size_t elements) const;

 private:
  struct Piece {
    std::size_t file = 0;
    std::string name;  // there
    std::size_t first = 0;
    std::size_t elements = 0;
  };
  struct Whole {
    TensorEntry entry;
    std::vector<Piece> pieces;  // in the order of their elements
  };
  void add(std::size_t file, const TensorEntry& entry);
  void check(Whole& whole) const;

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Whole, std::less<>> tensors_;
};

}  // namespace lockstep::io
