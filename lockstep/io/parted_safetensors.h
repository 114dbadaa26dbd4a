// Tensors that are divided between several files.
//
// A part is a range of elements in row-major order, or runs of elements at equal distances, like
// some columns of a matrix. In its file it has one dimension, a name that says which elements, and
// the whole shape among the metadata:
//
//   "up.weight[1024:2048]"        the elements 1024 to 2047 of "up.weight"
//   "up.weight[16:2048:16:32]"    from element 16 to 2047, runs of 16 elements every 32
//   {"up.weight": "64,32"}        metadata: of 64 rows of 32
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
  Tensor elements;         // on the CPU
  std::size_t run = 0;     // elements that follow each other in the whole; 0: all of them
  std::size_t stride = 0;  // from one run to the next
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
    std::size_t run = 0;  // as in TensorPart, and never 0 where there are elements
    std::size_t stride = 0;
  };
  struct Whole {
    TensorEntry entry;
    std::vector<Piece> pieces;  // in the order of their first elements
  };
  void add(std::size_t file, const TensorEntry& entry);
  void check(Whole& whole) const;
  // f(begin, count, at) for what a piece has of the elements [first, end) of the whole; `at` is
  // where in the piece.
  template <class F>
  static void for_runs_in(const Piece& piece, std::size_t first, std::size_t end, F&& f);

  std::filesystem::path folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, Whole, std::less<>> tensors_;
};

}  // namespace lockstep::io
