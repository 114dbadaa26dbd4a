// lockstep info: what this program finds to compute with.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "lockstep/base/net/aead.h"
#include "lockstep/base/simd/crc32c.h"
#include "lockstep/base/simd/isa.h"
#include "lockstep/base/system/cpu_set.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/comm/device_communicator.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/cuda.h"

namespace lockstep::cli {
namespace {

constexpr const char* kInfoFooter =
    R"(A run uses a GPU by default where one can be used (run.device = "auto").

Examples:
  lockstep info
  LOCKSTEP_KERNELS=avx2 lockstep info)";

void print_cpu() {
  const auto ops = make_cpu_ops(CpuSet::of_this_thread().count());
  fmt::print("cpu       {}\n", ops->name().substr(std::string_view("cpu, ").size()));
  fmt::print("          kernels: {} (available: {})\n", name(chosen_isa()), available_isa_names());
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    const LinearShape shape{.rows = 1024, .in = 1024, .out = 1024, .dtype = dtype};
    fmt::print("          products in {}: {}\n", name(dtype),
               ops->implementation(shape, LinearPass::kForward));
  }
}

void print_gpus() {
  for (const GpuInfo& gpu : cuda_devices()) {
    fmt::print("cuda:{}    {}, capability {}.{}, {} multiprocessors, {}\n", gpu.index, gpu.name,
               gpu.capability / 10, gpu.capability % 10, gpu.multiprocessors,
               format_bytes(static_cast<double>(gpu.total_bytes)));
    fmt::print("          driver for CUDA {}, runtime {}, cuBLASLt {}\n", gpu.driver, gpu.runtime,
               gpu.cublas_lt);
    if (!gpu.near_cpus.empty()) fmt::print("          near CPUs {}\n", gpu.near_cpus);
  }
  if (const std::string why = why_no_cuda(); !why.empty()) fmt::print("gpu       none: {}\n", why);
}

void print_network() {
  fmt::print("network   checksums by {}, encryption by {}\n", crc32c_implementation(),
             aead_library());
}

// Needed by GPUs of several nodes alone.
void print_nccl() {
  const NcclInfo nccl = nccl_info();
  if (nccl.problem.empty()) {
    fmt::print("nccl      {} ({})\n", nccl.version, nccl.file);
  } else if (cuda_is_available()) {
    fmt::print("nccl      none: {}\n", nccl.problem);
  }
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("info", "Show the CPUs, GPUs and libraries that can be used");
  command->footer(kInfoFooter);
  command->callback([&exit_code] {
    fmt::print("lockstep  {}\n", LOCKSTEP_VERSION);
    print_cpu();
    print_network();
    print_gpus();
    print_nccl();
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
