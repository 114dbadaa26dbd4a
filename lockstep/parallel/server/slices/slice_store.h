// The memory of a server: the states of its slices, and buffers for received gradients.
//
//   states     master copy, and first and second moment or velocity, in f32; the rounded
//              parameters where workers compute in 16 bits
//   slots      with bsp, one per slice and worker: gradients of a round, to be summed; as they
//              come, or in f32 where they come compressed
//   sum        with bsp: of a chunk of the slots, f32, for the optimizer that takes it at once
//   landings   one per worker, for a slice as it is on the wire
//              (parallel/server/slices/wire_format.h): gradients that have no slot, or that must
//              be decoded for it
//   decoded    asp and ssp: one slice of f32, where gradients come compressed
//   pulled     parameters as they are on the wire, where the wire has another type
//
// One thread at a time.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "lockstep/ops/ops.h"
#include "lockstep/parallel/server/slices/runs.h"
#include "lockstep/parallel/server/slices/served_layout.h"
#include "lockstep/parallel/server/slices/wire_format.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep::parallel {

class SliceStore {
 public:
  SliceStore(const ServedLayout& layout, Consistency consistency, int server, int workers,
             Ops& ops);
  // The exact bytes it allocates.
  static std::size_t bytes(const ServedLayout& layout, Consistency consistency, int server,
                           int workers);

  // The slices of this server, by their numbers among all, in order.
  std::span<const std::size_t> slices() const { return mine_; }
  bool is_mine(std::size_t slice) const;

  Tensor state(StateKind kind,
               std::size_t slice) const;  // absent if the optimizer has no such state
  // The parameters of a slice as they are sent to workers.
  std::span<const std::byte> pulled(std::size_t slice) const;
  // Updates pulled() from the master copy.
  void round_parameters(std::size_t slice);

  // The memory to receive a worker's gradients of a slice into. / Decodes what was received; valid
  // until the next receive. / With bsp: zero gradients instead. Throws Error(kProtocol) for an
  // invalid payload.
  std::span<std::byte> receiving(std::size_t slice, int worker) const;
  Tensor landed(std::size_t slice, int worker, std::int64_t step);
  void zero(std::size_t slice, int worker);
  // bsp: sums of squares of the chunks of the summed gradients.
  std::vector<double> squares(std::size_t slice);
  // Updates a slice with these gradients; with bsp, updates runs of it with the sum of all workers'
  // gradients.
  void update(std::size_t slice, const optim::UpdateStep& step, const Tensor& gradient);
  void update_by_sum(std::size_t slice, const optim::UpdateStep& step, const Runs& runs);
  // bsp without compression: replaces runs of a worker's gradients by contiguous `values`; and
  // returns runs of the parameters, contiguous, for workers.
  void replace(std::size_t slice, int worker, const Runs& runs, std::span<const std::byte> values);
  void copy_parameters(std::size_t slice, const Runs& runs, std::span<std::byte> to) const;

 private:
  const Slice& at(std::size_t slice) const { return layout_.slices[slice]; }
  Tensor view(const Tensor& buffer, std::size_t slice) const;
  Tensor slot(std::size_t slice, int worker) const;
  Tensor sum(std::size_t slice, nn::FlatRange range);
  void update_range(std::size_t slice, nn::FlatRange range, const optim::UpdateStep& step,
                    const Tensor& gradient);
  Tensor parameters(std::size_t slice) const;
  void encode_parameters(std::size_t slice);

  const ServedLayout& layout_;
  optim::OptimizerOptions optimizer_;  // of updates
  WireFormat format_;
  bool has_slots_;
  int workers_;
  Ops& ops_;
  std::vector<std::size_t> mine_;
  std::vector<std::size_t> offset_;  // by slice: in flat buffers of this server
  std::vector<Buffer> memory_;
  std::array<Tensor, kStateKinds> states_;
  Tensor rounded_;
  std::vector<Tensor> slots_;  // by worker
  Tensor sum_;
  std::vector<Buffer> landings_;  // by worker
  Buffer decoded_;
  Buffer pulled_;
  std::vector<std::size_t> pulled_offset_;  // by slice
  Buffer workspace_;                        // for sums of squares
};

}  // namespace lockstep::parallel
