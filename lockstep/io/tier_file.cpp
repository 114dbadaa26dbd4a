#include "lockstep/io/tier_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/file/content_hash.h"
#include "lockstep/base/log.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/base/text/units.h"

namespace lockstep::io {
namespace {

namespace fs = std::filesystem;

std::string space_text(const fs::path& folder) {
  std::error_code none;
  const fs::space_info space = fs::space(folder, none);
  if (none) return "";
  return fmt::format(", {} free there", format_bytes(static_cast<double>(space.available)));
}

}  // namespace

TierFile::TierFile(TierFileOptions options, std::span<const std::size_t> block_bytes)
    : options_(std::move(options)) {
  for (const std::size_t bytes : block_bytes) {
    blocks_.push_back({.offset = file_bytes_, .bytes = bytes});
    file_bytes_ += padded_bytes(bytes);
  }
  std::error_code none;
  if (!fs::is_directory(options_.folder, none)) {
    fail(ErrorCode::kInvalidArgument,
         "{} are offloaded to a file in '{}', which is not a folder; create it, or set "
         "offload.folder to another",
         options_.what, options_.folder.string());
  }
  if (options_.bytes_per_second > 0) pace_.emplace(options_.bytes_per_second);
  choose_engine();
  open(file_bytes_);
}

TierFile::~TierFile() {
  for (auto& [ticket, each] : under_way_) engine_->finish(each.transfer);
}

void TierFile::choose_engine() {
  if (options_.engine != TierEngine::kThreads) engine_ = make_uring_engine();
  if (engine_ != nullptr) return;
  if (options_.engine == TierEngine::kUring) {
    fail(ErrorCode::kUnsupported, "this system does not allow io_uring; use threads instead");
  }
  static std::atomic<bool> told = false;
  if (options_.engine == TierEngine::kAny && !told.exchange(true)) {
    log_info("this system does not allow io_uring; threads read and write the file tier");
  }
  engine_ = make_thread_engine();
}

void TierFile::open(std::size_t bytes) {
  constexpr int kMode = 0600;
  file_.reset(::open(options_.folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, kMode));
  if (!file_ && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT)) {
    // A file system without nameless files: for a moment it has one.
    std::string name = (options_.folder / ".lockstep-tier-XXXXXX").string();
    file_.reset(::mkostemp(name.data(), O_CLOEXEC));
    if (file_) ::unlink(name.c_str());
  }
  if (!file_) {
    fail_errno(
        fmt::format("cannot make a file for {} in {}", options_.what, options_.folder.string()),
        errno);
  }
  take_space(bytes);
  if (!options_.direct) return;
  const int flags = ::fcntl(file_.get(), F_GETFL);
  direct_ = flags >= 0 && ::fcntl(file_.get(), F_SETFL, flags | O_DIRECT) == 0;
  static std::atomic<bool> told = false;
  if (!direct_ && !told.exchange(true)) {
    log_info("the file system of {} has no direct I/O; the file tier goes through the page cache",
             options_.folder.string());
  }
}

void TierFile::take_space(std::size_t bytes) {
  if (bytes == 0) return;
  const auto refuse = [&](int error) {
    fail(ErrorCode::kSystem,
         "{} need a file of {} in {}{}, which cannot be made: {}. Set offload.folder to a folder "
         "with more free space, or offload less to files",
         options_.what, format_bytes(static_cast<double>(bytes)), options_.folder.string(),
         space_text(options_.folder), std::generic_category().message(error));
  };
  // Asking for more than the process may have would end it with a signal.
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      bytes > limit.rlim_cur) {
    refuse(EFBIG);
  }
  // Nor is the disk filled up to find out that it is too small.
  std::error_code none;
  const fs::space_info space = fs::space(options_.folder, none);
  if (!none && bytes > space.available) refuse(ENOSPC);
  int error = 0;
  do {
    error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) refuse(error);
}

TierFile::Ticket TierFile::read(std::size_t block, std::span<std::byte> memory) {
  return start(block, memory, false);
}

TierFile::Ticket TierFile::write(std::size_t block, std::span<std::byte> memory) {
  return start(block, memory, true);
}

void TierFile::check(const Block& block, std::span<std::byte> memory, bool writes) const {
  if (!writes && !block.is_written) {
    fail(ErrorCode::kInvalidArgument, "{} was never written", text(block));
  }
  if (memory.size() < padded_bytes(block.bytes) ||
      reinterpret_cast<std::uintptr_t>(memory.data()) % kAlignment != 0) {
    fail(ErrorCode::kInvalidArgument,
         "{} needs memory of {} bytes at a multiple of {}; {} bytes at {} were given", text(block),
         padded_bytes(block.bytes), kAlignment, memory.size(), fmt::ptr(memory.data()));
  }
}

TierFile::Ticket TierFile::start(std::size_t index, std::span<std::byte> memory, bool writes) {
  Block& block = blocks_.at(index);
  check(block, memory, writes);
  if (block.last != 0) wait(block.last);
  const std::size_t bytes = padded_bytes(block.bytes);
  if (writes) {
    std::memset(memory.data() + block.bytes, 0, bytes - block.bytes);
    block.hash = short_hash(memory.first(block.bytes));
    block.is_written = true;
  }
  (writes ? traffic_.written_bytes : traffic_.read_bytes) += block.bytes;

  const Ticket ticket = block.last = ++last_ticket_;
  UnderWay& started = under_way_[ticket];
  started.block = index;
  started.memory = memory;
  started.transfer = {.file = file_.get(),
                      .writes = writes,
                      .memory = memory.data(),
                      .bytes = bytes,
                      .offset = block.offset};
  if (pace_) started.not_before = pace_->book(bytes, SteadyClock::now());
  if (bytes == 0) {
    started.transfer.done = true;
  } else {
    engine_->start(started.transfer);
  }
  return ticket;
}

void TierFile::wait(Ticket ticket) {
  const auto found = under_way_.find(ticket);
  if (found == under_way_.end()) return;
  const auto begin = SteadyClock::now();
  engine_->finish(found->second.transfer);
  if (pace_) std::this_thread::sleep_until(found->second.not_before);
  traffic_.waited_seconds += seconds_since(begin);

  const UnderWay ended = found->second;
  under_way_.erase(found);
  Block& block = blocks_[ended.block];
  if (block.last == ticket) block.last = 0;
  conclude(block, ended.transfer, ended.memory);
}

void TierFile::conclude(const Block& block, const Transfer& ended,
                        std::span<std::byte> memory) const {
  if (ended.error == 0) {
    if (ended.writes || short_hash(memory.first(block.bytes)) == block.hash) return;
    fail(ErrorCode::kProtocol,
         "{} was damaged on disk: what was read differs from what was written. It was not used. "
         "Continue from the last checkpoint with offload.folder on another disk",
         text(block));
  }
  const std::string why = ended.error == Transfer::kFileEnded
                              ? "the file ends before it"
                              : std::generic_category().message(ended.error);
  const bool is_full = ended.error == ENOSPC || ended.error == EDQUOT || ended.error == EFBIG;
  fail(ErrorCode::kSystem,
       "cannot {} {}: {}{}. {}, or set offload.folder to another folder, and continue from the "
       "last checkpoint",
       ended.writes ? "write" : "read", text(block), why,
       is_full ? space_text(options_.folder) : "",
       is_full ? "Free some space there" : "Check that disk");
}

void TierFile::read_now(std::size_t index, std::span<std::byte> memory) const {
  const Block& block = blocks_.at(index);
  check(block, memory, false);
  Transfer transfer{.file = file_.get(),
                    .writes = false,
                    .memory = memory.data(),
                    .bytes = padded_bytes(block.bytes),
                    .offset = block.offset};
  const auto not_before =
      pace_ ? pace_->book(transfer.bytes, SteadyClock::now()) : SteadyClock::time_point();
  carry_out(transfer);
  if (pace_) std::this_thread::sleep_until(not_before);
  conclude(block, transfer, memory);
}

void TierFile::wait() {
  while (!under_way_.empty()) wait(under_way_.begin()->first);
}

std::string TierFile::text(const Block& block) const {
  return fmt::format("block {} of the file of {} in {} ({} bytes at offset {})",
                     &block - blocks_.data(), options_.what, options_.folder.string(), block.bytes,
                     block.offset);
}

}  // namespace lockstep::io
