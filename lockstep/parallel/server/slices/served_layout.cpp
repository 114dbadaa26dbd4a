#include "lockstep/parallel/server/slices/served_layout.h"

#include <cmath>

#include "lockstep/base/file/content_hash.h"
#include "lockstep/parallel/server/slices/slice_store.h"

namespace lockstep::parallel {
namespace {

DType take_dtype(Unpacker& unpacker) {
  const auto dtype = static_cast<DType>(unpacker.take<std::uint8_t>());
  if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
    fail(ErrorCode::kProtocol, "parameters and gradients must be f32, bf16 or f16, not type {}",
         static_cast<int>(dtype));
  }
  return dtype;
}

CompressionOptions take_compression(Unpacker& unpacker) {
  const auto number = unpacker.take<std::uint8_t>();
  const auto ratio = unpacker.take<double>();
  if (number > static_cast<std::uint8_t>(Compression::kRandomk) || !(ratio > 0 && ratio <= 1)) {
    fail(ErrorCode::kProtocol, "unknown compression number {} with a ratio of {}", number, ratio);
  }
  return {.compression = static_cast<Compression>(number), .ratio = ratio};
}

}  // namespace

bool ServedLayout::has(StateKind kind) const {
  switch (kind) {
    case StateKind::kMaster:
      return true;
    case StateKind::kFirstMoment:
    case StateKind::kSecondMoment:
      return optim::has_moments(optimizer);
    case StateKind::kVelocity:
      return optim::has_velocity(optimizer);
  }
  return false;
}

std::string encode_layout(const ServedLayout& layout) {
  const optim::OptimizerOptions& optimizer = layout.optimizer;
  return Packer()
      .add(static_cast<std::uint8_t>(layout.parameter))
      .add(static_cast<std::uint8_t>(layout.gradient))
      .add(static_cast<std::uint8_t>(layout.compression.compression))
      .add(layout.compression.ratio)
      .add(static_cast<std::uint8_t>(optimizer.kind))
      .add(optimizer.beta1)
      .add(optimizer.beta2)
      .add(optimizer.epsilon)
      .add(optimizer.momentum)
      .add(optimizer.weight_decay)
      .add(optimizer.max_grad_norm)
      .text(encode_slices(layout.slices))
      .take();
}

ServedLayout decode_layout(std::span<const std::byte> bytes, int servers) {
  Unpacker unpacker(bytes);
  ServedLayout layout;
  layout.parameter = take_dtype(unpacker);
  layout.gradient = take_dtype(unpacker);
  layout.compression = take_compression(unpacker);
  const auto kind = unpacker.take<std::uint8_t>();
  if (kind > static_cast<std::uint8_t>(optim::OptimizerKind::kSgd)) {
    fail(ErrorCode::kProtocol, "unknown optimizer number {}", kind);
  }
  layout.optimizer.kind = static_cast<optim::OptimizerKind>(kind);
  for (double* field : {&layout.optimizer.beta1, &layout.optimizer.beta2, &layout.optimizer.epsilon,
                        &layout.optimizer.momentum, &layout.optimizer.weight_decay,
                        &layout.optimizer.max_grad_norm}) {
    *field = unpacker.take<double>();
    if (!std::isfinite(*field) || *field < 0) {
      fail(ErrorCode::kProtocol, "a setting of the optimizer is {}, which is out of range", *field);
    }
  }
  layout.slices = decode_slices(unpacker.text(), servers);
  unpacker.finish();
  return layout;
}

std::string hash_of(const ServedLayout& layout) { return content_hash(encode_layout(layout)); }

Priority priority_of(const Slice& slice, SliceSchedule schedule) {
  return schedule == SliceSchedule::kPriority ? static_cast<Priority>(slice.block + 1) : 1;
}

std::size_t server_bytes(const ServedLayout& layout, const ServerOptions& options, int server,
                         int workers) {
  return SliceStore::bytes(layout, options.consistency, server, workers);
}

}  // namespace lockstep::parallel
