// A page of a mapping that the file no longer reaches raises SIGBUS when it is read. The handler
// looks for the mapping that holds the address, puts zeros in place of all of its pages from there
// on, and marks it as cut; then the read is done again. The handler may interrupt any thread at any
// place: it takes no lock, and walks through slots that are never freed.
#include "lockstep/base/file/mapped_file.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/regular_file.h"

namespace lockstep {

// Where a mapping lies, for the handler.
struct MappingSlot {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};  // 0: no mapping has this slot
  std::atomic<bool> cut{false};
  MappingSlot* next = nullptr;
};
static_assert(std::atomic<std::uintptr_t>::is_always_lock_free &&
                  std::atomic<bool>::is_always_lock_free,
              "a signal handler reads them");

namespace {

std::atomic<MappingSlot*> first_slot{nullptr};
struct sigaction former_bus_action {};

bool replace_cut_pages(std::uintptr_t address) {
  for (MappingSlot* slot = first_slot.load(); slot != nullptr; slot = slot->next) {
    const std::uintptr_t end = slot->end.load();
    if (address < slot->begin.load() || address >= end) continue;
    const auto page = static_cast<std::uintptr_t>(::getpagesize());
    const std::uintptr_t from = address / page * page;
    void* const zeros = ::mmap(reinterpret_cast<void*>(from), end - from, PROT_READ,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (zeros == MAP_FAILED) return false;
    slot->cut.store(true);
    return true;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int kept = errno;
  const bool replaced = replace_cut_pages(reinterpret_cast<std::uintptr_t>(info->si_addr));
  errno = kept;
  if (replaced) return;
  if ((former_bus_action.sa_flags & SA_SIGINFO) != 0) {
    former_bus_action.sa_sigaction(signal, info, context);
  } else if (former_bus_action.sa_handler != SIG_DFL && former_bus_action.sa_handler != SIG_IGN) {
    former_bus_action.sa_handler(signal);
  } else {
    ::signal(signal, SIG_DFL);  // the read is done again, and ends the process
  }
}

class Slots {
 public:
  MappingSlot* take(std::uintptr_t begin, std::uintptr_t end) {
    const std::lock_guard lock(mutex_);
    if (first_slot.load() == nullptr) install_handler();
    MappingSlot* slot = nullptr;
    if (!free_.empty()) {
      slot = free_.back();
      free_.pop_back();
    } else {
      slot = new MappingSlot;  // never freed: the handler may be looking at it
      slot->next = first_slot.load();
      first_slot.store(slot);
    }
    slot->cut.store(false);
    slot->begin.store(begin);
    slot->end.store(end);
    return slot;
  }

  void give_back(MappingSlot* slot) {
    slot->end.store(0);
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
  }

 private:
  static void install_handler() {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, &former_bus_action);
  }

  std::mutex mutex_;
  std::vector<MappingSlot*> free_;
};

// Never destroyed: a file may be unmapped while the process ends.
Slots& slots() {
  static Slots& instance = *new Slots;
  return instance;
}

}  // namespace

struct MappedFile::Mapping {
  Mapping(const std::filesystem::path& file, void* data, std::size_t size)
      : path(file), begin(data), bytes(size) {
    const auto at = reinterpret_cast<std::uintptr_t>(data);
    const auto page = static_cast<std::size_t>(::getpagesize());
    slot = slots().take(at, at + (size + page - 1) / page * page);
  }
  ~Mapping() {
    slots().give_back(slot);
    ::munmap(begin, bytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool is_cut() const {
    struct stat status {};
    return slot->cut.load(std::memory_order_relaxed) ||
           (watched && ::fstat(watched.get(), &status) == 0 &&
            static_cast<std::size_t>(status.st_size) < bytes);
  }

  std::filesystem::path path;
  UniqueFd watched;
  void* begin;
  std::size_t bytes;
  MappingSlot* slot;
};

MappedFile::MappedFile() = default;
MappedFile::~MappedFile() = default;

MappedFile::MappedFile(const std::filesystem::path& path, Watch watch) {
  auto [file, size] = open_regular(path);
  if (size == 0) return;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) fail_errno(fmt::format("cannot map {}", path.string()), errno);
  mapping_ = std::make_unique<Mapping>(path, data, size);
  if (watch == Watch::kSize) mapping_->watched = std::move(file);
  bytes_ = {static_cast<const std::byte*>(data), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), mapping_(std::move(other.mapping_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

void MappedFile::check_whole() const {
  if (!mapping_ || !mapping_->is_cut()) return;
  fail(ErrorCode::kProtocol, "{} became shorter than its {} bytes while it was read",
       mapping_->path.string(), bytes_.size());
}

}  // namespace lockstep
