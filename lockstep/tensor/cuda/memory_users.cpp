#include "lockstep/tensor/cuda/memory_users.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

// The used part of NVML, declared by its documentation: its header is not part of the CUDA packages
// that a build needs.
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance;
  unsigned compute_instance;
};
using Device = struct NvmlDevice*;
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned long long kNotAvailable = ~0ull;

struct CloseLibrary {
  void operator()(void* library) const { ::dlclose(library); }
};

class Nvml {
 public:
  Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    find(init_, "nvmlInit_v2");
    find(shutdown_, "nvmlShutdown");
    find(device_, "nvmlDeviceGetHandleByPciBusId_v2");
    find(processes_, "nvmlDeviceGetComputeRunningProcesses_v3");
    works_ = init_ != nullptr && shutdown_ != nullptr && device_ != nullptr &&
             processes_ != nullptr && init_() == kSuccess;
  }
  ~Nvml() {
    if (works_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::vector<ProcessInfo> processes(const char* bus) const {
    Device device = nullptr;
    if (!works_ || device_(bus, &device) != kSuccess) return {};
    std::vector<ProcessInfo> all(64);
    for (int tries = 0; tries < 3; ++tries) {  // processes may start between two calls
      auto count = static_cast<unsigned>(all.size());
      const int status = processes_(device, &count, all.data());
      if (status == kSuccess) {
        all.resize(count);
        return all;
      }
      if (status != kInsufficientSize) return {};
      all.resize(2 * std::size_t{count} + 1);
    }
    return {};
  }

 private:
  template <class Function>
  void find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_.get(), name));
  }

  std::unique_ptr<void, CloseLibrary> library_;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*device_)(const char*, Device*) = nullptr;
  int (*processes_)(Device, unsigned*, ProcessInfo*) = nullptr;
  bool works_ = false;
};

// Empty where the process is in another container.
std::string name_of_process(unsigned pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace

std::vector<GpuUser> memory_users(int index) {
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), index),
        "asking a GPU for its address");
  std::vector<GpuUser> users;
  for (const ProcessInfo& process : Nvml().processes(bus.data())) {
    if (process.pid == static_cast<unsigned>(::getpid())) continue;
    const bool known = process.used_bytes != kNotAvailable;
    users.push_back({.pid = process.pid,
                     .name = name_of_process(process.pid),
                     .bytes = known ? static_cast<std::size_t>(process.used_bytes) : 0});
  }
  std::ranges::stable_sort(users, std::greater<>(), &GpuUser::bytes);
  return users;
}

}  // namespace lockstep::cuda
