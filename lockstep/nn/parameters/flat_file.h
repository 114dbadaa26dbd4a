// Flat buffers (nn/parameters/flat_parameters.h) in a file, processed in chunks.
//
// The file has *chunks* of each block's shard, in the order of blocks, which is the order of
// updates. A chunk has a range of each flat buffer. A *stream* reads chunk after chunk into *slots*
// in memory and writes changed ones back: while one is in use, the next is read and the previous
// one is written.
//
//   slot 0   | read 0 | work 0 | write 0    | read 3 | ...
//   slot 1            | read 1 | work 1 | write 1    | ...
//   slot 2                     | read 2 | work 2     | ...
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "lockstep/io/tier_file.h"
#include "lockstep/nn/parameters/sharding.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::nn {

struct FlatChunk {
  std::size_t block = 0;
  FlatRange range;  // in the whole flat buffer
};

class FlatFile {
 public:
  struct Layout {
    std::vector<FlatRange> parts;  // one of each block, in the whole flat buffer
    std::vector<DType> buffers;
    std::size_t chunk_elements = 0;  // at most
    bool overlaps = true;            // else one slot, without overlap

    std::size_t slots() const { return overlaps ? 3 : 1; }
    // The memory of the slots.
    std::size_t staging_bytes() const;
    // The size of the file, with padding.
    std::size_t file_bytes() const;
    std::vector<FlatChunk> chunks() const;
    std::vector<std::size_t> block_bytes() const;  // of the file
  };

  // Throws what io::TierFile and Buffer throw.
  FlatFile(const io::TierFileOptions& options, Layout layout);

  const Layout& layout() const { return layout_; }
  std::span<const FlatChunk> chunks() const { return chunks_; }
  const io::TierFile& file() const { return file_; }

 private:
  friend class FlatFileStream;
  friend class FlatFileReader;
  std::span<std::byte> memory(std::size_t slot, std::size_t buffer) const;
  static Tensor tensor(std::span<std::byte> memory, DType dtype, std::size_t elements);
  std::size_t buffer_bytes(std::size_t buffer) const;
  std::size_t block_of(std::size_t chunk, std::size_t buffer) const;

  Layout layout_;
  std::vector<FlatChunk> chunks_;
  Buffer staging_;
  io::TierFile file_;  // declared last: transfers end before the memory is freed
};

// How a stream accesses a flat buffer.
struct BufferAccess {
  bool reads = false;
  bool writes = false;  // all of it, where it does not read
};

// One pass over a file; only one at a time. Throws what io::TierFile throws.
//
//   FlatFileStream stream(file, {{.reads = true, .writes = true}});
//   while (const FlatChunk* chunk = stream.next()) work_with(*chunk, stream.buffer(0));
class FlatFileStream {
 public:
  // Over the chunks of all blocks, or of one. `access` has one for each flat buffer.
  FlatFileStream(FlatFile& file, std::vector<BufferAccess> access);
  FlatFileStream(FlatFile& file, std::vector<BufferAccess> access, std::size_t block);
  // Waits for running transfers. The current chunk is not written.
  ~FlatFileStream();
  FlatFileStream(const FlatFileStream&) = delete;
  FlatFileStream& operator=(const FlatFileStream&) = delete;

  // Writes the current chunk and returns the next one; nullptr after the last, when everything is
  // in the file.
  const FlatChunk* next();
  // The flat buffer of the current chunk; absent if it is not accessed.
  Tensor buffer(std::size_t buffer) const;

 private:
  std::size_t slot_of(std::size_t chunk) const;
  void begin_reading(std::size_t chunk);
  void begin_writing(std::size_t chunk);
  void settle(std::size_t slot);

  FlatFile& file_;
  std::vector<BufferAccess> access_;
  std::size_t first_ = 0;
  std::size_t end_ = 0;
  std::size_t at_ = 0;                                        // the next to be given
  std::size_t reading_ = 0;                                   // the next to be brought
  std::vector<std::vector<io::TierFile::Ticket>> under_way_;  // of each slot
};

// Reads chunks on another thread, with its own memory, while a stream does not change them.
class FlatFileReader {
 public:
  explicit FlatFileReader(const FlatFile& file);
  // Calls f with the elements of a range of a flat buffer, in order, chunk by chunk. The range is
  // in one block's shard. The last chunk of each flat buffer is cached. Throws what io::TierFile
  // throws.
  void read(std::size_t buffer, FlatRange range, const std::function<void(const Tensor&)>& f);
  // Drops cached chunks, which may have changed.
  void forget();
  // What it read so far.
  const io::TierTraffic& traffic() const { return traffic_; }
  // Its memory for a flat buffer, allocated at the first read.
  static std::size_t bytes(const FlatFile::Layout& layout, std::size_t buffer);

 private:
  const FlatFile& file_;
  std::vector<Buffer> memory_;      // for a chunk of each flat buffer
  std::vector<std::size_t> there_;  // the cached chunk of each
  io::TierTraffic traffic_;
};

}  // namespace lockstep::nn
