#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/combine.h"
#include "lockstep/comm/reduce/kernel_set.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace lockstep {
namespace {

using reduce::KernelCall;

struct KernelSet {
  std::string_view name;
  bool (*runs_here)();
  reduce::Kernel combine;
};

// Best first.
constexpr KernelSet kKernelSets[] = {
#if defined(__aarch64__)
    {"neon16",
     [] {
       constexpr unsigned long kNeeded = HWCAP_ASIMDFHM | HWCAP_ATOMICS;
       return (::getauxval(AT_HWCAP) & kNeeded) == kNeeded &&
              (::getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
     },
     reduce::combine_neon16},
    {"neon", [] { return true; }, reduce::combine_neon},
#elif defined(__x86_64__)
    {"avx512",
     [] {
       return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
     },
     reduce::combine_avx512},
    {"avx2",
     [] {
       return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("f16c");
     },
     reduce::combine_avx2},
#endif
    {"scalar", [] { return true; }, reduce::combine_scalar},
};

const KernelSet& find_kernel_set(std::string_view name) {
  for (const KernelSet& set : kKernelSets) {
    if (set.name == name && set.runs_here()) return set;
  }
  std::string have;
  for (std::string_view other : available_kernel_sets()) {
    have += have.empty() ? "" : ", ";
    have += other;
  }
  fail(ErrorCode::kUnsupported, "kernel set '{}' cannot run on this CPU; these can: {}", name,
       have);
}

const KernelSet& first_choice() {
  const char* forced = std::getenv("LOCKSTEP_KERNELS");
  if (forced != nullptr && *forced != '\0') {
    // Tiles multiply matrices; beside them there is AVX-512.
    return find_kernel_set(std::string_view(forced) == "amx" ? "avx512" : forced);
  }
  return find_kernel_set(available_kernel_sets().front());
}

const KernelSet*& current() {
  static const KernelSet* set = &first_choice();
  return set;
}

// Below this many bytes there is nothing to fetch ahead.
constexpr std::size_t kPrefetchBytes = 1024;

// Above this many bytes read and written, the results would only push other data out of the cache.
constexpr std::size_t kStreamBytes = std::size_t{4} << 20;

bool all_update(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs) {
  return std::all_of(outputs.begin(), outputs.end(), [&](const std::byte* output) {
    return std::find(inputs.begin(), inputs.end(), output) != inputs.end();
  });
}

bool worth_streaming(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                     std::size_t bytes) {
  if ((inputs.size() + outputs.size()) * bytes < kStreamBytes) return false;
  for (const std::byte* input : inputs) {
    for (const std::byte* output : outputs) {
      if (input == output) return false;
    }
  }
  return true;
}

void copy_to_all(const std::byte* input, std::span<std::byte* const> outputs, std::size_t bytes) {
  for (std::byte* output : outputs) {
    if (output != input) std::memcpy(output, input, bytes);
  }
}

// The user's function works on one accumulator, so blocks of it grow in a scratch that stays in
// the first-level cache.
void combine_user(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
                  std::size_t count, DType dtype, const UserReduction& user) {
  constexpr std::size_t kBlockBytes = 4096;
  alignas(64) std::byte block[kBlockBytes];
  const std::size_t size = size_of(dtype);
  for (std::size_t done = 0; done < count;) {
    const std::size_t here = std::min(count - done, kBlockBytes / size);
    const std::size_t offset = done * size;
    std::memcpy(block, inputs[0] + offset, here * size);
    for (const std::byte* input : inputs.subspan(1)) {
      user.combine(block, input + offset, here, dtype, user.context);
    }
    for (std::byte* output : outputs) std::memcpy(output + offset, block, here * size);
    done += here;
  }
}

}  // namespace

void combine(std::span<const std::byte* const> inputs, std::span<std::byte* const> outputs,
             std::size_t count, DType dtype, const ReduceOp& op, int divisor) {
  if (inputs.empty()) {
    fail(ErrorCode::kInvalidArgument, "combine: nothing to combine; at least one input is needed");
  }
  if (divisor < 1) {
    fail(ErrorCode::kInvalidArgument, "combine: divisor {} is not a number of ranks", divisor);
  }
  if (count == 0 || outputs.empty()) return;
  const bool divides = op.kind == ReduceOp::kMean && divisor != 1;
  const std::size_t bytes = count * size_of(dtype);
  if (inputs.size() == 1 && !divides) return copy_to_all(inputs[0], outputs, bytes);
  if (op.kind == ReduceOp::kUser) return combine_user(inputs, outputs, count, dtype, *op.user);
  const ReduceOp::Kind kind = op.kind == ReduceOp::kMean && !divides ? ReduceOp::kSum : op.kind;
  current()->combine({.inputs = inputs.data(),
                      .input_count = inputs.size(),
                      .outputs = outputs.data(),
                      .output_count = outputs.size(),
                      .count = count,
                      .dtype = dtype,
                      .op = kind,
                      .divisor = divisor,
                      .updates = bytes >= kPrefetchBytes && all_update(inputs, outputs),
                      .stream = worth_streaming(inputs, outputs, bytes)});
}

void divide(std::byte* values, std::size_t count, DType dtype, int divisor) {
  const std::byte* input = values;
  combine({&input, 1}, {&values, 1}, count, dtype, ReduceOp::kMean, divisor);
}

std::string_view kernel_set() { return current()->name; }

std::vector<std::string_view> available_kernel_sets() {
  std::vector<std::string_view> names;
  for (const KernelSet& set : kKernelSets) {
    if (set.runs_here()) names.push_back(set.name);
  }
  return names;
}

void use_kernel_set(std::string_view name) { current() = &find_kernel_set(name); }

}  // namespace lockstep
