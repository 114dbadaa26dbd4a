// Reduces the gradient of the token embedding in two parts.
//
// A tied embedding is used twice: the first block embeds tokens and the last block computes logits.
// Backward starts with the last block, whose part of the gradient is dense, and ends with the first
// one, whose part is sparse: it has only the rows of the batch's tokens. So the dense part is
// reduced early, during backward, and the sparse part is exchanged as rows between all workers, who
// add them in the same order.
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
  // Nothing if the first block of the plan has no such table, or if the rows of all workers are not
  // much less than the table. `accumulates`: whether other micro-batches precede the one whose rows
  // are exchanged.
  static std::optional<TableRows> find(const nn::MemoryPlan& plan, int workers, bool accumulates);

  const nn::FlatParameter& table() const { return table_; }
  // The block whose backward completes the dense part; nothing if there is none.
  std::optional<std::size_t> complete_after() const { return complete_after_; }

  // The segments of the flat buffer of gradients in the order of completion, with the table. The
  // last block completes what is tied to it in parts (BlockListener::accumulated), before its own
  // parameters.
  std::vector<Segment> segments(const nn::FlatParameters& flat) const;

  std::size_t bytes() const;  // the memory that exchange() needs
  void set_memory(SymmetricBuffer memory) { memory_ = std::move(memory); }

  // What all workers send in a step, by link.
  LinkBytes links(PlannedCalls& calls) const;

  // Exchanges the rows of the last backward; nothing: this worker has no share of the step, and its
  // rows are zero.
  void exchange(Communicator& workers, const std::optional<nn::SparseGradient>& mine) const;
  // Adds the exchanged rows, after the dense part has been reduced.
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
