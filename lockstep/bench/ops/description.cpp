#include "lockstep/bench/ops/description.h"

#include <cmath>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {

double unit(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-53;
    case DType::kF32:
      return 0x1p-24;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0;
  }
}

double Tolerance::allowed(DType type, double reference) const {
  // Below this a type has no more places; only results near 0 meet it.
  const double smallest = type == DType::kF16 ? 0x1p-24 : 0x1p-133;
  const double total = relative * unit(type) * std::fabs(reference) + noise * unit(DType::kF32) +
                       coarse * unit(type);
  return total == 0 ? 0 : std::max(total, smallest);
}

Tensor Tensors::operator[](std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? Tensor{} : found->second;
}

double OpCase::bytes() const {
  if (bytes_moved) return *bytes_moved;
  double total = 0;
  for (const OpField& field : fields) {
    total += static_cast<double>(field.bytes()) * (field.role == Role::kUpdated ? 2 : 1);
  }
  return total;
}

const OpField* OpCase::find(std::string_view field) const {
  for (const OpField& one : fields) {
    if (one.name == field) return &one;
  }
  return nullptr;
}

const std::vector<OpDescription>& op_descriptions() {
  static const std::vector<OpDescription> kAll = [] {
    std::vector<OpDescription> all;
    for (const auto& area :
         {describe_linear(), describe_elementwise(), describe_swiglu(), describe_float8(),
          describe_norm(), describe_embedding(), describe_attention(), describe_decode_attention(),
          describe_merge_attention(), describe_relative_bias(), describe_rotary(),
          describe_routing(), describe_loss(), describe_optimizer()}) {
      all.insert(all.end(), area.begin(), area.end());
    }
    return all;
  }();
  return kAll;
}

}  // namespace lockstep::bench
