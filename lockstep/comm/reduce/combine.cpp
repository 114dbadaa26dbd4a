#include <algorithm>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/comm/reduce/combine.h"
#include "lockstep/comm/reduce/kernels.h"

namespace lockstep {
namespace {

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
  reduce::reduce_kernels(chosen_isa())
      .combine({.inputs = inputs.data(),
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

}  // namespace lockstep
