#include "lockstep/parallel/ddp/table_rows.h"

#include <algorithm>

namespace lockstep::parallel {
namespace {

constexpr std::size_t kPartAlignment = 64;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

}  // namespace

std::optional<TableRows> TableRows::find(const nn::MemoryPlan& plan, int workers,
                                         bool accumulates) {
  const auto& parameters = plan.specs.front().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const nn::FlatParameter* place = plan.flat.place(0, i);
    if (parameters[i].sparse_rows == 0 || place == nullptr || place->block != 0) continue;
    TableRows found;
    found.table_ = *place;
    found.rows_ = parameters[i].sparse_rows;
    found.width_ = place->shape[1];
    found.dtype_ = plan.setup.dtype;
    found.workers_ = static_cast<std::size_t>(workers);
    for (std::size_t block = plan.specs.size(); block-- > 1;) {
      for (const nn::ParameterSpec& other : plan.specs[block].parameters) {
        if (other.tied_to == place->name) found.complete_after_ = block;
      }
    }
    found.comes_in_parts_ = found.complete_after_ == plan.specs.size() - 1;
    if (!found.complete_after_ && accumulates) found.complete_after_ = plan.specs.size() - 1;
    const std::size_t table = place->shape.elements() * size_of(plan.setup.gradient);
    if (2 * found.bytes() <= table) return found;
  }
  return std::nullopt;
}

std::vector<Segment> TableRows::segments(const nn::FlatParameters& flat) const {
  std::vector<Segment> segments = segments_of(flat);
  if (segments.empty() || segments.back().ready_after != 0) return segments;
  const nn::FlatRange all = segments.back().range;
  segments.pop_back();
  const std::size_t elements = table_.shape.elements();
  const nn::FlatRange table{
      table_.offset, std::min((elements + nn::FlatParameters::kAlignment - 1) /
                                  nn::FlatParameters::kAlignment * nn::FlatParameters::kAlignment,
                              all.end() - table_.offset)};
  if (complete_after_) {
    const auto behind = std::find_if(segments.begin(), segments.end(), [&](const Segment& one) {
      return one.ready_after < *complete_after_ + (comes_in_parts_ ? 1 : 0);
    });
    segments.insert(behind, {table, *complete_after_});
  }
  if (table.first > all.first) segments.push_back({{all.first, table.first - all.first}, 0});
  if (all.end() > table.end()) segments.push_back({{table.end(), all.end() - table.end()}, 0});
  return segments;
}

std::size_t TableRows::bytes() const {
  return aligned(rows() * sizeof(std::int32_t)) +
         aligned(rows() * static_cast<std::size_t>(width_) * size_of(dtype_));
}

Tensor TableRows::all_tokens() const {
  return {memory_.data(), DType::kI32, {static_cast<std::int64_t>(rows())}};
}
Tensor TableRows::all_rows() const {
  return {memory_.data() + aligned(rows() * sizeof(std::int32_t)),
          dtype_,
          {static_cast<std::int64_t>(rows()), width_}};
}

void TableRows::exchange(Communicator& workers,
                         const std::optional<nn::SparseGradient>& mine) const {
  const auto gather = [&](Tensor one, const Tensor& all) {
    if (!mine) {
      one = all.slice(workers.rank() * rows_, rows_);
      fill_zero(one);
    }
    workers.all_gather(ConstData(one.data(), one.elements(), one.dtype()),
                       Data(all.data(), all.elements(), all.dtype()));
  };
  gather(mine ? mine->tokens : Tensor(), all_tokens());
  gather(mine ? mine->rows : Tensor(), all_rows());
}

LinkBytes TableRows::links(PlannedCalls& calls) const {
  const auto gather = [&](std::size_t elements, DType dtype) {
    return calls.sent(
        all_gather(Data(nullptr, elements, dtype), Data(nullptr, workers_ * elements, dtype)));
  };
  const auto rows = static_cast<std::size_t>(rows_);
  return gather(rows, DType::kI32) + gather(rows * static_cast<std::size_t>(width_), dtype_);
}

void TableRows::add(nn::Replica& replica) const {
  ops::EmbeddingBackward add;
  add.tokens = all_tokens();
  add.dy = all_rows();
  add.dtokens_table = nn::FlatParameters::view(replica.states().gradients, table_);
  replica.ops().run(add);
}

}  // namespace lockstep::parallel
