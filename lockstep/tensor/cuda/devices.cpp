#include "lockstep/tensor/cuda/devices.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/tensor/cuda/check.h"

namespace lockstep::cuda {
namespace {

std::string visible_devices() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : fmt::format(" (CUDA_VISIBLE_DEVICES is '{}')", visible);
}

// Why the runtime does not work here; empty where it does. An old driver and none at all are the
// same error to the runtime, which loads the driver's library, libcuda.so.1, by itself.
std::string runtime_problem(cudaError_t status, int driver) {
  if (driver == 0) {
    return "no NVIDIA driver is installed here: its library libcuda.so.1 could not be loaded; "
           "install a driver, or in a container start it with access to the host's GPUs";
  }
  if (driver / 1000 < CUDART_VERSION / 1000) {
    return fmt::format(
        "the NVIDIA driver of this machine knows CUDA up to {}, and lockstep was built with {}; "
        "update the driver",
        version_text(driver), version_text(CUDART_VERSION));
  }
  if (status == cudaErrorNoDevice) {
    return fmt::format("the NVIDIA driver shows no GPU to this process{}", visible_devices());
  }
  if (status != cudaSuccess) {
    return fmt::format("CUDA could not be started: {} ({})", cudaGetErrorString(status),
                       cudaGetErrorName(status));
  }
  return {};
}

std::string capability_text(int capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

std::string too_old(const GpuInfo& gpu) {
  return fmt::format("it is a {} of compute capability {}, and lockstep needs {} or later",
                     gpu.name, capability_text(gpu.capability), capability_text(kLeastCapability));
}

// cuBLASLt counts its versions as 13.0.2 in 130002.
std::string cublas_lt_version() {
  const std::size_t version = cublasLtGetVersion();
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

std::string cpus_near(int index) {
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof(bus), index), "asking for a GPU's address");
  for (char& letter : bus) {
    if (letter >= 'A' && letter <= 'F') letter = static_cast<char>(letter - 'A' + 'a');
  }
  std::ifstream file(fmt::format("/sys/bus/pci/devices/{}/local_cpulist", bus));
  std::string cpus;
  std::getline(file, cpus);
  return cpus;
}

GpuInfo describe(int index, int driver) {
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking a GPU for its properties");
  return {.index = index,
          .name = properties.name,
          .capability = properties.major * 10 + properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .total_bytes = properties.totalGlobalMem,
          .near_cpus = cpus_near(index),
          .driver = version_text(driver),
          .runtime = version_text(CUDART_VERSION),
          .cublas_lt = cublas_lt_version()};
}

Devices look() {
  // All streams of a process share this number of queues. A kernel that waits for another must not
  // stand before it in the same queue. Under the multi-process service, where ranks are processes,
  // their queues together are few.
  constexpr int kLeastQueues = 8;
  const char* const queues = std::getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  const bool are_few = queues == nullptr || std::atoi(queues) < kLeastQueues;
  if (are_few && !mps_runs()) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  Devices found;
  found.problem = runtime_problem(status, driver);
  if (!found.problem.empty()) return found;
  for (int index = 0; index < count; ++index) found.all.push_back(describe(index, driver));
  const bool all_old = std::ranges::all_of(
      found.all, [](const GpuInfo& gpu) { return gpu.capability < kLeastCapability; });
  if (found.all.empty()) {
    found.problem = runtime_problem(cudaErrorNoDevice, driver);
  } else if (all_old) {
    found.problem = fmt::format("no GPU of this machine can be used; of the first: {}",
                                too_old(found.all.front()));
  }
  return found;
}

}  // namespace

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

bool mps_runs() {
  const char* const folder = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  std::error_code ignored;
  return std::filesystem::exists(
      std::filesystem::path(folder != nullptr ? folder : "/tmp/nvidia-mps") / "control", ignored);
}

const Devices& devices() {
  static const Devices kFound = look();
  return kFound;
}

std::string problem_of(int index) {
  const Devices& found = devices();
  if (!found.problem.empty()) return found.problem;
  const auto count = static_cast<int>(found.all.size());
  if (index < 0 || index >= count) {
    return count == 1 ? fmt::format("this process sees one GPU, cuda:0{}", visible_devices())
                      : fmt::format("this process sees {} GPUs, cuda:0 to cuda:{}{}", count,
                                    count - 1, visible_devices());
  }
  const GpuInfo& gpu = found.all[static_cast<std::size_t>(index)];
  return gpu.capability < kLeastCapability ? too_old(gpu) : "";
}

void use_device(int index) { check(cudaSetDevice(index), "taking a GPU into use"); }

}  // namespace lockstep::cuda
