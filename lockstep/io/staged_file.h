// Items of any size, address and device in a file (io/tier_file.h), transferred in pieces through
// staging memory.
//
//   StagedFile file({.folder = "/scratch", .what = "activations"}, {.items = {5'000'000, 17}});
//   file.store(0, kept);        // `kept` may be reused on return; not all of it is written yet
//   file.fetch(0, 0, kept);
//
// An *item* is cut into *pieces*, blocks of the file with a hash each. Staging has *slots*, of one
// piece each: while one is copied others are written, or the next ones read.
//
//   store()  --> time                             fetch()  --> time
//   slot 0   | copy 0 | write 0  ...              slot 0   | read 0 | copy 0 | read 4 ...
//   slot 1            | copy 1 | write 1 ...      slot 1   | read 1          | copy 1 | read 5 ...
//   slot 2                     | copy 2 | ...     slot 2   | read 2                   | copy 2 ...
//
// The last read piece stays in its slot, so consecutive parts of an item are read once. Beside a
// GPU the slots are page-locked, and copies are on a stream of their own.
//
// One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "lockstep/io/tier_file.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/cuda.h"
#include "lockstep/tensor/stream.h"

namespace lockstep::io {

class StagedFile {
 public:
  struct Layout {
    std::vector<std::size_t> items;  // bytes of each
    bool overlaps = true;            // else one slot, without overlap

    // The longest piece, in whole pages.
    std::size_t piece_bytes() const;
    std::size_t slots() const { return overlaps ? 4 : 1; }
    // The memory of the slots.
    std::size_t staging_bytes() const { return slots() * piece_bytes(); }
    // The size of the file, with padding.
    std::size_t file_bytes() const;
    std::vector<std::size_t> block_bytes() const;  // of the file
  };

  // Bytes of an item from `first` on, and where they go to.
  struct Part {
    std::size_t item = 0;
    std::size_t first = 0;
    Tensor to;
  };

  // For tensors of this device and of the host. Throws what TierFile and Buffer throw.
  StagedFile(const TierFileOptions& options, Layout layout, Device device = {});

  // Stores a whole item, whose operations have ended. Throws Error(kInvalidArgument) if `from` has
  // another size, and what TierFile throws for this or an earlier transfer.
  void store(std::size_t item, const Tensor& from);
  // Throws Error(kInvalidArgument) where an item has no such bytes, and what TierFile throws.
  void fetch(std::span<const Part> parts);
  void fetch(std::size_t item, std::size_t first, const Tensor& to);

  const Layout& layout() const { return layout_; }
  const TierFile& file() const { return file_; }

 private:
  struct Slot {
    std::size_t block;  // that it holds, or is to; kNone where it does not
    TierFile::Ticket ticket = 0;
    std::uint64_t used = 0;
  };
  // A run of bytes in one piece.
  struct Run {
    std::size_t block = 0;
    std::size_t first = 0;  // in the piece
    Tensor bytes;
  };
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  void check(std::size_t item, std::size_t first, const Tensor& bytes) const;
  void add_runs(const Part& part, std::vector<Run>& runs) const;
  std::span<std::byte> memory(const Slot& slot) const;
  Tensor staged(const Slot& slot, std::size_t first, std::size_t bytes) const;
  Slot* find(std::size_t block);
  Slot& take_oldest();
  void bring(std::size_t block);
  void settle(Slot& slot);
  void copy_now(const Tensor& to, const Tensor& from);

  Layout layout_;
  std::vector<std::size_t> first_blocks_;  // of each item
  std::vector<Slot> slots_;
  std::uint64_t uses_ = 0;
  Buffer staging_;
  PinnedRange pinned_;            // of no bytes where there is no GPU
  std::optional<Stream> stream_;  // beside a GPU
  TierFile file_;                 // declared last: transfers end before the memory is freed
};

}  // namespace lockstep::io
