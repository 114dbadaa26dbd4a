// Blocks of bytes in a file: the file tier, for states that do not fit into memory.
//
//   const std::size_t sizes[] = {12345, 4096};
//   TierFile file({.folder = "/scratch", .what = "optimizer states"}, sizes);
//   Buffer memory(TierFile::padded_bytes(12345));
//   TierFile::Ticket written = file.write(0, {memory.data(), memory.bytes()});
//   ...                                         // other work meanwhile
//   file.wait(written);                         // the memory may be used again
//   file.wait(file.read(0, {memory.data(), memory.bytes()}));
//
// The file is allocated completely at the start, so a full disk is detected then, and has no name,
// so nothing is left of it however the process ends. Transfers use direct I/O if the file system
// supports it, and io_uring or threads (io/transfer.h). Every block's hash is kept in memory, so a
// damaged block is an error and is never used.
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
  kAny,  // io_uring, or threads if it is not allowed
  kUring,
  kThreads,
};

struct TierFileOptions {
  std::filesystem::path folder;
  std::string what;  // "optimizer states", for errors
  TierEngine engine = TierEngine::kAny;
  bool direct = true;           // bypasses the page cache, if possible
  double bytes_per_second = 0;  // an emulated limit for reads and writes together; 0: none
};

// The transfers of a file so far.
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
  // The alignment of the address and size of a block's memory (tensor/buffer.h provides it), and of
  // blocks in the file.
  static constexpr std::size_t kAlignment = 4096;
  static constexpr std::size_t padded_bytes(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Throws Error(kSystem), with the bytes needed and those free, if the folder is full or cannot be
  // written; Error(kInvalidArgument) if it does not exist; and Error(kUnsupported) if io_uring is
  // requested and not allowed.
  TierFile(TierFileOptions options, std::span<const std::size_t> block_bytes);
  // Waits for running transfers.
  ~TierFile();
  TierFile(const TierFile&) = delete;
  TierFile& operator=(const TierFile&) = delete;

  std::size_t blocks() const { return blocks_.size(); }
  std::size_t bytes(std::size_t block) const { return blocks_.at(block).bytes; }
  std::size_t file_bytes() const { return file_bytes_; }
  std::string_view engine() const { return engine_->name(); }
  bool is_direct() const { return direct_; }

  using Ticket = std::uint64_t;  // from 1
  // Starts a transfer of a whole block, after earlier ones of the same block. `memory` has
  // padded_bytes(bytes(block)) and must not be used until wait(). write() zeroes the padding.
  // Reading a block that was never written throws Error(kInvalidArgument).
  Ticket read(std::size_t block, std::span<std::byte> memory);
  Ticket write(std::size_t block, std::span<std::byte> memory);
  // Throws Error(kSystem) if the transfer failed (a full disk, a broken disk, a truncated file),
  // and Error(kProtocol) if a block differs from what was written. Does nothing if it was awaited
  // before.
  void wait(Ticket ticket);
  // Waits for all transfers.
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
    Ticket last = 0;  // 0: no transfer is running
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
  // Throws if a transfer failed or read something else.
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
