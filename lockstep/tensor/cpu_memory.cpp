#include "lockstep/tensor/cpu_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>

namespace lockstep {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
// Beyond this, rounding up could pass the end of the address space.
constexpr std::size_t kMostBytes = std::numeric_limits<std::ptrdiff_t>::max() - 2 * kHugePage;

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

std::size_t mapped_bytes(std::size_t bytes) {
  static const auto kPage = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return round_up(bytes, kPage);
}

// Maps a huge page more than is needed and gives back what lies before and behind the aligned part.
std::byte* map_aligned(std::size_t bytes) {
  const std::size_t length = mapped_bytes(bytes);
  void* const mapped = ::mmap(nullptr, length + kHugePage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const start = static_cast<std::byte*>(mapped);
  const auto address = reinterpret_cast<std::uintptr_t>(mapped);
  const std::size_t before = round_up(address, kHugePage) - address;
  std::byte* const data = start + before;
  if (before > 0) ::munmap(start, before);
  if (before < kHugePage) ::munmap(data + length, kHugePage - before);
  ::madvise(data, length, MADV_HUGEPAGE);  // a kernel without huge pages refuses; that is fine
  return data;
}

class CpuMemory final : public DeviceMemory {
 public:
  CpuMemory() : DeviceMemory(Device{}) {}

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memmove(to, from, bytes);
  }
  void fill_zero(std::byte* data, std::size_t bytes) override { std::memset(data, 0, bytes); }

 private:
  std::byte* take(std::size_t bytes, std::size_t alignment) override {
    if (bytes > kMostBytes) return nullptr;
    if (bytes >= kHugePage) return map_aligned(bytes);
    return static_cast<std::byte*>(std::aligned_alloc(alignment, round_up(bytes, alignment)));
  }
  void give_back(std::byte* data, std::size_t bytes) noexcept override {
    if (bytes >= kHugePage) {
      ::munmap(data, mapped_bytes(bytes));
    } else {
      std::free(data);
    }
  }
};

}  // namespace

DeviceMemory& cpu_memory() {
  static CpuMemory memory;
  return memory;
}

}  // namespace lockstep
