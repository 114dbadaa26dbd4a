#include "lockstep/tensor/cuda.h"

#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cuda_module.h"

namespace lockstep {
namespace cuda {
namespace {

constexpr ModuleSpec kCudaModule{
    .name = "CUDA",
    .file = "liblockstep_cuda.so",
    .variable = "LOCKSTEP_CUDA_MODULE",
    .how_to_build =
        "use cpu, or install CUDA 13 with its compiler nvcc, configure lockstep again "
        "with -DLOCKSTEP_CUDA=ON and build",
    .libraries =
        "install the libraries of CUDA 13 (cuBLAS is libcublas-13-0 in NVIDIA's packages) "
        "or name the folder that holds them in LD_LIBRARY_PATH",
    .version_symbol = kVersionSymbol,
    .version = kModuleVersion,
};

CudaModule& look_up_interface() {
  return *module().function<InterfaceFunction>(kInterfaceSymbol)();
}

// Null where there is none.
CudaModule* find_interface() {
  try {
    return &look_up_interface();
  } catch (const Error&) {
    return nullptr;
  }
}

CudaModule& interface() {
  static CudaModule* const kInterface = find_interface();
  return kInterface != nullptr ? *kInterface : look_up_interface();  // which throws the reason
}

// The module, or why there is none. The error is kept and not thrown by the initialiser of a
// static: that would search for the file again at every call, and the thread sanitizer of GCC 12
// never wakes a thread that waits for an initialiser that throws.
struct Loading {
  std::optional<Module> module;
  std::optional<Error> failure;
};

Loading load() {
  Loading loading;
  try {
    loading.module.emplace(kCudaModule);
  } catch (const Error& error) {
    loading.failure = error;
  }
  return loading;
}

[[noreturn]] void refuse(int index, std::string_view why) {
  fail(ErrorCode::kUnsupported, "{} is not available: {}", name(Device{DeviceKind::kCuda, index}),
       why);
}

}  // namespace

const Module& module() {
  static const Loading kLoading = load();
  if (kLoading.failure) throw Error(*kLoading.failure);
  return *kLoading.module;
}

CudaModule& module_for(int index) {
  CudaModule* found = nullptr;
  try {
    found = &interface();
  } catch (const Error& error) {
    refuse(index, error.what());
  }
  if (const std::string why = found->problem_of(index); !why.empty()) refuse(index, why);
  return *found;
}

}  // namespace cuda

std::string why_no_cuda() {
  try {
    return cuda::interface().problem();
  } catch (const Error& error) {
    return error.what();
  }
}

std::vector<GpuInfo> cuda_devices() {
  try {
    return cuda::interface().devices();
  } catch (const Error&) {
    return {};
  }
}

std::size_t free_cuda_memory(int index) { return cuda::module_for(index).free_bytes(index); }
std::vector<GpuUser> cuda_memory_users(int index) { return cuda::module_for(index).users(index); }
DeviceMemory& cuda_memory(int index) { return cuda::module_for(index).memory(index); }
std::unique_ptr<Stream::Queue> make_cuda_queue(int index) {
  return cuda::module_for(index).make_queue(index);
}

PinnedBuffer::PinnedBuffer(std::size_t bytes)
    : data_(bytes == 0 ? nullptr : cuda::interface().allocate_pinned(bytes)), bytes_(bytes) {}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cuda::interface().free_pinned(data_);
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  PinnedBuffer taken(std::move(other));
  std::swap(data_, taken.data_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

Tensor PinnedBuffer::tensor(DType dtype, const Shape& shape, std::size_t offset) const {
  const std::size_t needed = Tensor::bytes_of(dtype, shape);
  if (offset > bytes_ || needed > bytes_ - offset) {
    fail(ErrorCode::kInvalidArgument,
         "a {} tensor of shape {} at byte {} needs {} bytes, but the pinned buffer has {}",
         name(dtype), shape.text(), offset, needed, bytes_);
  }
  return {bytes_ == 0 ? nullptr : data_ + offset, dtype, shape};
}

PinnedRange::PinnedRange(std::byte* data, std::size_t bytes) {
  if (bytes == 0) return;
  cuda::interface().pin(data, bytes);
  data_ = data;
}

PinnedRange::~PinnedRange() {
  if (data_ != nullptr) cuda::interface().unpin(data_);
}

PinnedRange::PinnedRange(PinnedRange&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

PinnedRange& PinnedRange::operator=(PinnedRange&& other) noexcept {
  PinnedRange taken(std::move(other));
  std::swap(data_, taken.data_);
  return *this;
}

}  // namespace lockstep
