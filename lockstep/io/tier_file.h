// Blocks of bytes in a file instead of in memory: the tier for states that memory has no room for.
//
//   const std::size_t sizes[] = {12345, 4096};
//   TierFile file({.folder = "/scratch", .what = "optimizer states"}, sizes);
//   Buffer memory(TierFile::padded_bytes(12345));
//   TierFile::Ticket written = file.write(0, {memory.data(), memory.bytes()});
//   ...                                         // goes on meanwhile
//   file.wait(written);                         // the memory may be used again
//   file.wait(file.read(0, {memory.data(), memory.bytes()}));
//
// It has its whole size on the disk from the start, so a disk that is too full is told then, and no
// name, so nothing is left of it however the process ends. Transfers go past the page cache (direct
// I/O) where the file system lets them, and are carried out by io_uring or threads
// (io/transfer.h). Every block's hash is kept in memory, and a block that comes back other than it
// went is an error, never a number to compute with.
//
// One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/net/link_emulation.h"
#include "lockstep/io/transfer.h"

namespace lockstep::io {

enum class TierEngine : std::uint8_t {
  kAny,  // io_uring, or threads where it is refused
  kUring,
  kThreads,
};

struct TierFileOptions {
  std::filesystem::path folder;
  std::string what;  // "optimizer states", for errors
  TierEngine engine = TierEngine::kAny;
  bool direct = true;           // past the page cache, where that can be done
  double bytes_per_second = 0;  // of a slower disk, reads and writes together; 0: this one's
};

// What went through a file so far.
struct TierTraffic {
  std::uint64_t read_bytes = 0;
  std::uint64_t written_bytes = 0;
  double waited_seconds = 0;  // in wait(), and in what waits for an earlier transfer

  std::uint64_t bytes() const { return read_bytes + written_bytes; }
  TierTraffic operator+(const TierTraffic& more) const {
    return {read_bytes + more.read_bytes, written_bytes + more.written_bytes,
            waited_seconds + more.waited_seconds};
  }
  TierTraffic operator-(const TierTraffic& before) const {
    return {read_bytes - before.read_bytes, written_bytes - before.written_bytes,
            waited_seconds - before.waited_seconds};
  }
};

class TierFile {
 public:
  // Memory of a block begins at such a multiple and is such a multiple long (tensor/buffer.h gives
  // such memory), and blocks in the file too.
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t padded_bytes(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Throws Error(kSystem), with the bytes needed and those free, where the folder has no room or
  // cannot be written to; Error(kInvalidArgument) where there is no such folder; and
  // Error(kUnsupported) for io_uring, if asked for and refused.
  TierFile(TierFileOptions options, std::span<const std::size_t> block_bytes);
  // Waits for what is under way.
  ~TierFile();
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;

  std::size_t blocks() const { return blocks_.size(); }
  std::size_t bytes(std::size_t block) const { return blocks_.at(block).bytes; }
  std::size_t file_bytes() const { return file_bytes_; }
  std::string_view engine() const { return engine_->name(); }
  bool is_direct() const { return direct_; }

  using Ticket = std::uint64_t;  // from 1
  // Begin a transfer of a whole block, behind an earlier one of the same block. `memory` has
  // padded_bytes(bytes(block)) and is the transfer's until that was waited for. write() makes what
  // lies behind the block's bytes zero. Reading a block that was never written throws
  // Error(kInvalidArgument).
  Ticket read(std::size_t block, std::span<std::byte> memory);
  Ticket write(std::size_t block, std::span<std::byte> memory);
  // Throws Error(kSystem) where the transfer failed (a full disk, a broken one, a file cut short),
  // and Error(kProtocol) for a block that was read but is not what was written. Does nothing for
  // one that was waited for.
  void wait(Ticket ticket);
  // All that is under way.
  void wait();
  // Reads a block by the calling thread, which may be another one while none of its transfers is
  // under way. Throws what wait() throws.
  void read_now(std::size_t block, std::span<std::byte> memory) const;

  const TierTraffic& traffic() const { return traffic_; }
  // For tests, which damage the file.
  int descriptor() const { return file_.get(); }

 private:
  struct Block {
    std::uint64_t offset = 0;
    std::size_t bytes = 0;
    std::uint64_t hash = 0;  // of what was written last
    bool is_written = false;
    Ticket last = 0;  // 0: nothing is under way
  };
  struct UnderWay {
    Transfer transfer;
    std::size_t block = 0;
    std::span<std::byte> memory;
    std::chrono::steady_clock::time_point not_before;
  };

  void open(std::size_t bytes);
  void take_space(std::size_t bytes);
  void choose_engine();
  Ticket start(std::size_t block, std::span<std::byte> memory, bool writes);
  void check(const Block& block, std::span<std::byte> memory, bool writes) const;
  // Throws where a transfer failed or brought something else.
  void conclude(const Block& block, const Transfer& ended, std::span<std::byte> memory) const;
  std::string text(const Block& block) const;

  TierFileOptions options_;
  std::vector<Block> blocks_;
  std::size_t file_bytes_ = 0;
  UniqueFd file_;
  bool direct_ = false;
  mutable std::optional<LinkPace> pace_;
  TierTraffic traffic_;
  Ticket last_ticket_ = 0;
  std::map<Ticket, UnderWay> under_way_;
  std::unique_ptr<TransferEngine> engine_;
};

}  // namespace lockstep::io
