// The gradient of a table of tokens, in two parts.
//
// The table of a language model is often used twice: to embed tokens by the first block, and to
// make logits by the last one. Backward begins with the last block, whose part of the gradient has
// all rows, and ends with the first one, whose part has the rows of the tokens of the batch. So the
// large part can be reduced early, while backward goes on, and of the small one only those rows
// travel, from every worker to every other; all add them in the same order.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/native/planned_calls.h"
#include "lockstep/nn/replica/replica.h"
#include "lockstep/parallel/ddp/buckets.h"

namespace lockstep::parallel {

class TableRows {
 public:
  // Nothing where the first block of the plan has no such table, or where its rows of all workers
  // are not much less than the table. `accumulates`: whether other micro-batches come before the
  // one whose rows are exchanged.
  static std::optional<TableRows> find(const nn::MemoryPlan& plan, int workers, bool accumulates);

  const nn::FlatParameter& table() const { return table_; }
  // The block whose backward completes the other part, which has all rows; nothing: there is none.
  std::optional<std::size_t> complete_after() const { return complete_after_; }

  // Where a table's own part of the flat buffer of gradients lies in the order of completion. The
  // last block completes what is tied to it part by part (BlockListener::accumulated), before what
  // it owns.
  std::vector<Segment> segments(const nn::FlatParameters& flat) const;

  std::size_t bytes() const;  // that exchange() needs in all
  void set_memory(SymmetricBuffer memory) { memory_ = std::move(memory); }

  // What all workers send in a step, by the links that it takes.
  LinkBytes links(PlannedCalls& calls) const;

  // Of the last backward; nothing: of a worker without a share of the step, whose rows are zero.
  void exchange(Communicator& workers, const std::optional<nn::SparseGradient>& mine) const;
  // Afterwards, when the table's other part has been reduced.
  void add(nn::Replica& replica) const;

 private:
  std::size_t rows() const { return static_cast<std::size_t>(rows_) * workers_; }
  Tensor all_tokens() const;
  Tensor all_rows() const;

  nn::FlatParameter table_;
  std::int64_t rows_ = 0;  // of one worker
  std::int64_t width_ = 0;
  DType dtype_ = DType::kF32;
  std::size_t workers_ = 1;
  std::optional<std::size_t> complete_after_;
  bool comes_in_parts_ = false;
  SymmetricBuffer memory_;
};

}  // namespace lockstep::parallel
