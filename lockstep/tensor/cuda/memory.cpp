#include "lockstep/tensor/cuda/memory.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/copy.h"
#include "lockstep/tensor/cuda/current_stream.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::cuda {
namespace {

// Bytes per copy where source and destination overlap.
constexpr std::size_t kPiece = std::size_t{32} << 20;

bool is_aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

// nullptr if memory is short.
void* allocate_or_null(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check(status, "allocating memory on the GPU");
  return data;
}

enum class Reach { kOwnGpu, kPinned, kOther };

Reach reach_of(const void* data) {
  int device = 0;
  cudaPointerAttributes attributes{};
  check(cudaGetDevice(&device), "asking for the current GPU");
  check(cudaPointerGetAttributes(&attributes, data), "asking where memory lies");
  if (attributes.type == cudaMemoryTypeHost) return Reach::kPinned;
  const bool is_own = attributes.type == cudaMemoryTypeDevice && attributes.device == device;
  return is_own ? Reach::kOwnGpu : Reach::kOther;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking for the state of a stream");
  return status != cudaStreamCaptureStatusNone;
}

// Where ranks are threads of one process, a copy of one rank that waits for a collective must not
// hold up the rank that the collective waits for. The copy engines take copies of all streams in
// turn, so kernels copy from and to pinned memory. A copy from or to pageable memory waits within
// CUDA, where it keeps other threads out, so it is queued when nothing is left to wait for.
void copy_beside_other_ranks(std::byte* to, const std::byte* from, std::size_t bytes,
                             cudaStream_t stream) {
  if (reach_of(to) != Reach::kOther && reach_of(from) != Reach::kOther) {
    return copy_on_gpu(to, from, bytes, stream);
  }
  if (!is_capturing(stream)) check(cudaStreamSynchronize(stream), "work on the GPU");
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "a copy from or to the GPU");
}

void copy_apart(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream) {
  if (ranks_are_threads()) return copy_beside_other_ranks(to, from, bytes, stream);
  if (reach_of(to) == Reach::kOwnGpu && reach_of(from) == Reach::kOwnGpu) {
    return copy_on_gpu(to, from, bytes, stream);
  }
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "a copy from or to the GPU");
}

// Copies in chunks through a temporary buffer, from the end at which no unread source is
// overwritten.
void copy_overlapping(std::byte* to, const std::byte* from, std::size_t bytes,
                      cudaStream_t stream) {
  const std::size_t piece = std::min(bytes, kPiece);
  void* beside = nullptr;
  check(cudaMallocAsync(&beside, piece, stream), "allocating memory for a copy that overlaps");
  const std::size_t pieces = (bytes + piece - 1) / piece;
  const bool forwards = std::less<const std::byte*>()(to, from);
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t first = (forwards ? i : pieces - 1 - i) * piece;
    const std::size_t count = std::min(piece, bytes - first);
    copy_apart(static_cast<std::byte*>(beside), from + first, count, stream);
    copy_apart(to + first, static_cast<const std::byte*>(beside), count, stream);
  }
  check(cudaFreeAsync(beside, stream), "freeing the memory of a copy that overlaps");
}

// What was given back while a ThreadRanks lives.
struct Late {
  std::mutex mutex;
  int holders = 0;
  std::vector<std::pair<void*, cudaError_t (*)(void*)>> frees;
};
Late& late() {
  static auto& made = *new Late;  // never destroyed, as memory may be given back at the very end
  return made;
}

// A free fails only where the process ends, or the GPU is lost.
void free_now_or_late(void* data, cudaError_t (*free)(void*)) noexcept {
  {
    Late& all = late();
    const std::lock_guard lock(all.mutex);
    if (all.holders > 0) return static_cast<void>(all.frees.emplace_back(data, free));
  }
  free(data);
  cudaGetLastError();
}

class CudaMemory final : public DeviceMemory {
 public:
  explicit CudaMemory(int device)
      : DeviceMemory(Device{DeviceKind::kCuda, device}), device_(device) {}

  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes == 0 || to == from) return;
    in_place([&](cudaStream_t stream) {
      const std::less<const std::byte*> before;
      const bool overlap = before(to, from + bytes) && before(from, to + bytes);
      (overlap ? copy_overlapping : copy_apart)(to, from, bytes, stream);
    });
  }

  void fill_zero(std::byte* data, std::size_t bytes) override {
    in_place([&](cudaStream_t stream) {
      check(cudaMemsetAsync(data, 0, bytes, stream), "filling memory of the GPU with zeros");
    });
  }

 private:
  // CUDA aligns to 256 bytes, which is nearly always enough. For a larger alignment more memory is
  // allocated, and the beginning of the allocation is stored.
  std::byte* take(std::size_t bytes, std::size_t alignment) override {
    use_device(device_);
    void* data = allocate_or_null(bytes);
    if (data == nullptr || is_aligned(data, alignment)) return static_cast<std::byte*>(data);
    check(cudaFree(data), "freeing memory of the GPU");
    std::size_t padded = bytes + alignment;
    data = allocate_or_null(padded);
    void* start = data;
    if (data == nullptr || std::align(alignment, bytes, start, padded) == nullptr) return nullptr;
    const std::lock_guard lock(mutex_);
    begins_[start] = data;
    return static_cast<std::byte*>(start);
  }

  void give_back(std::byte* data, std::size_t) noexcept override {
    void* begin = data;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = begins_.find(data); found != begins_.end()) {
        begin = found->second;
        begins_.erase(found);
      }
    }
    cudaSetDevice(device_);
    free_on_gpu(begin);
  }

  // In order with the work of the calling thread's task. Without a task it runs after all
  // operations and is done on return.
  template <class Work>
  void in_place(Work&& work) {
    if (const cudaStream_t current = CurrentStream::get(); current != nullptr) return work(current);
    use_device(device_);
    const cudaStream_t stream = cudaStreamPerThread;
    OperationStream::let_wait(device_, stream);
    work(stream);
    check(cudaStreamSynchronize(stream), "work on the GPU");
  }

  const int device_;
  std::mutex mutex_;
  std::map<void*, void*> begins_;  // beginnings of allocations that were aligned by hand
};

}  // namespace

DeviceMemory& memory_of_gpu(int device) {
  // Never destroyed: Buffers of static objects may be freed after everything else.
  static const auto& all = *[] {
    auto* const made = new std::vector<CudaMemory*>;
    for (const GpuInfo& gpu : devices().all) made->push_back(new CudaMemory(gpu.index));
    return made;
  }();
  return *all.at(static_cast<std::size_t>(device));
}

void free_on_gpu(void* data) noexcept {
  if (data == nullptr) return;
  free_now_or_late(data, [](void* memory) { return cudaFree(memory); });
}

std::byte* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    fail(ErrorCode::kSystem,
         "not enough pinned host memory for {} bytes; choose settings that need less, or raise the "
         "limit of locked memory (ulimit -l)",
         bytes);
  }
  check(status, "allocating pinned memory");
  return static_cast<std::byte*>(data);
}

void free_pinned(std::byte* data) noexcept {
  free_now_or_late(data, [](void* memory) { return cudaFreeHost(memory); });
}

bool ranks_are_threads() {
  const std::lock_guard lock(late().mutex);
  return late().holders > 0;
}

ThreadRanks::ThreadRanks() {
  const std::lock_guard lock(late().mutex);
  ++late().holders;
}

ThreadRanks::~ThreadRanks() {
  std::vector<std::pair<void*, cudaError_t (*)(void*)>> frees;
  {
    const std::lock_guard lock(late().mutex);
    if (--late().holders == 0) frees.swap(late().frees);
  }
  for (const auto& [data, free] : frees) free(data);
  cudaGetLastError();
}

void pin(std::byte* data, std::size_t bytes) {
  // Kernels may read and write it in place.
  const cudaError_t status =
      cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (status == cudaErrorMemoryAllocation || status == cudaErrorNotSupported) {
    cudaGetLastError();
    fail(ErrorCode::kSystem,
         "{} bytes of host memory cannot be pinned, which copies from and to a GPU need; choose "
         "settings that need less, or raise the limit of locked memory (ulimit -l)",
         bytes);
  }
  check(status, "pinning host memory");
}

void unpin(std::byte* data) noexcept { cudaHostUnregister(data); }

}  // namespace lockstep::cuda
