// The kernel's two rings, as io_uring(7) has them. A program puts *entries* that say what to do
// into the first and moves its tail; the kernel puts one *completion* for each into the second and
// moves that one's tail. The reader of a ring moves its head.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/io/transfer.h"

namespace lockstep::io {
namespace {

constexpr unsigned kEntries = 64;
// The longest that a system call moves, in whole pages.
constexpr std::size_t kMostBytes = std::size_t{1} << 30;
// Both rings in one mapping, and reads and writes at an offset: since 5.6.
constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;

class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t bytes, std::uint64_t offset) : bytes_(bytes) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd,
                              static_cast<off_t>(offset));
    if (data != MAP_FAILED) data_ = static_cast<std::byte*>(data);
  }
  ~Mapping() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  explicit operator bool() const { return data_ != nullptr; }
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

std::size_t ring_bytes(const io_uring_params& params) {
  return std::max(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                  params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
}

class UringEngine final : public TransferEngine {
 public:
  UringEngine(UniqueFd ring, const io_uring_params& params)
      : params_(params),
        rings_(ring.get(), ring_bytes(params), IORING_OFF_SQ_RING),
        entries_(ring.get(), params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES),
        ring_(std::move(ring)) {}

  bool is_mapped() const { return rings_ && entries_; }
  std::string_view name() const override { return "io_uring"; }

  void start(Transfer& transfer) override {
    while (under_way_ >= params_.sq_entries) take_completions(true);
    submit(transfer);
  }

  void finish(Transfer& transfer) override {
    take_completions(false);
    while (!transfer.done) take_completions(true);
  }

 private:
  // One entry at a time is in the first ring: the kernel takes it out before the call returns.
  void submit(Transfer& transfer) {
    unsigned& tail = *rings_.at<unsigned>(params_.sq_off.tail);
    const unsigned position = tail;
    const unsigned index = position & *rings_.at<unsigned>(params_.sq_off.ring_mask);
    io_uring_sqe& entry = entries_.at<io_uring_sqe>(0)[index];
    std::memset(&entry, 0, sizeof entry);
    entry.opcode = transfer.writes ? IORING_OP_WRITE : IORING_OP_READ;
    entry.fd = transfer.file;
    entry.addr = reinterpret_cast<std::uintptr_t>(transfer.memory);
    entry.len = static_cast<std::uint32_t>(std::min(transfer.bytes, kMostBytes));
    entry.off = transfer.offset;
    entry.user_data = reinterpret_cast<std::uintptr_t>(&transfer);
    rings_.at<unsigned>(params_.sq_off.array)[index] = index;
    std::atomic_ref(tail).store(tail + 1, std::memory_order_release);
    ++under_way_;
    for (long taken = 0; (taken = enter(1, 0, 0)) < 1;) {
      const int error = taken < 0 ? errno : EAGAIN;
      if (error == EINTR) continue;
      if (error != EAGAIN && error != EBUSY) {
        // The kernel did not take it: unless the rest of another came behind it, it never was
        // there.
        if (tail != position + 1) fail_errno("cannot hand a transfer to io_uring", error);
        std::atomic_ref(tail).store(position, std::memory_order_release);
        --under_way_;
        transfer.error = error;
        transfer.done = true;
        return;
      }
      // The kernel's queue is full until another transfer has ended.
      if (under_way_ > 1) take_completions(true);
    }
  }

  void take_completions(bool waits) {
    if (waits && enter(0, 1, IORING_ENTER_GETEVENTS) < 0 && errno != EINTR && errno != EBUSY) {
      fail_errno("cannot wait for io_uring", errno);
    }
    const std::atomic_ref tail(*rings_.at<unsigned>(params_.cq_off.tail));
    std::atomic_ref head(*rings_.at<unsigned>(params_.cq_off.head));
    const unsigned mask = *rings_.at<unsigned>(params_.cq_off.ring_mask);
    while (head.load(std::memory_order_relaxed) != tail.load(std::memory_order_acquire)) {
      const unsigned at = head.load(std::memory_order_relaxed);
      const io_uring_cqe completion = rings_.at<io_uring_cqe>(params_.cq_off.cqes)[at & mask];
      head.store(at + 1, std::memory_order_release);
      --under_way_;
      // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel gives back the number it was given
      Transfer& transfer = *reinterpret_cast<Transfer*>(completion.user_data);
      if (advance(transfer, completion.res)) {
        transfer.done = true;
      } else {
        submit(transfer);
      }
    }
  }

  long enter(unsigned submitted, unsigned ended, unsigned flags) {
    return ::syscall(SYS_io_uring_enter, ring_.get(), submitted, ended, flags, nullptr, 0);
  }

  io_uring_params params_;
  Mapping rings_;
  Mapping entries_;
  UniqueFd ring_;
  unsigned under_way_ = 0;
};

}  // namespace

std::unique_ptr<TransferEngine> make_uring_engine() {
  io_uring_params params{};
  UniqueFd ring(static_cast<int>(::syscall(SYS_io_uring_setup, kEntries, &params)));
  if (!ring || (params.features & kNeeded) != kNeeded) return nullptr;
  auto engine = std::make_unique<UringEngine>(std::move(ring), params);
  if (!engine->is_mapped()) return nullptr;
  return engine;
}

}  // namespace lockstep::io
