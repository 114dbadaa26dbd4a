#include "lockstep/bench/ops/case_tensors.h"

#include <algorithm>
#include <cmath>

#include "lockstep/bench/ops/fill.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kMostSets = 16;

}  // namespace

CaseTensors::CaseTensors(const OpCase& one, Ops& ops) {
  std::uint64_t seed = 1;
  for (const OpField& field : one.fields) {
    const Buffer& buffer = buffers_.emplace_back(field.bytes(), ops.device());
    const Tensor tensor = buffer.tensor(field.dtype, field.shape);
    field.role == Role::kOutput ? fill_zero(tensor) : fill(tensor, field.fill, seed++);
    tensors_.put(field.name, tensor);
  }
  if (one.prepare) one.prepare(ops, tensors_);
}

std::size_t count_of_sets(const OpCase& one, std::size_t more_than_caches) {
  const double sets = std::ceil(static_cast<double>(more_than_caches) / std::max(1.0, one.bytes()));
  return std::min(kMostSets, static_cast<std::size_t>(std::max(1.0, sets)));
}

std::vector<CaseTensors> make_sets(const OpCase& one, Ops& ops, std::size_t more_than_caches) {
  std::vector<CaseTensors> sets;
  while (sets.size() < count_of_sets(one, more_than_caches)) sets.emplace_back(one, ops);
  return sets;
}

CaseScratch::CaseScratch(const OpCase& one, Ops& ops)
    : ops_(ops), memory_(one.scratch ? one.scratch(ops) : 0, ops.device()) {
  ops_.use_scratch(memory_.tensor(DType::kU8, {static_cast<std::int64_t>(memory_.bytes())}));
}

CaseScratch::~CaseScratch() { ops_.use_scratch({}); }

}  // namespace lockstep::bench
