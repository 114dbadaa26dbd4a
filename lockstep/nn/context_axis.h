// The communication of a context group inside attention (nn/context_slice.h).
//
// Heads. Rows of a rank are [batch * tokens, width], the tokens that it has. Their columns are
// segments, such as queries, keys and values, and each segment is divided by the ranks. to_heads()
// gives a rank all tokens of its columns:
//
//   tokens of 2 ranks    | q0 q1 | k0 k1 | v0 v1 |      each rank: half of the rows
//   heads of rank 0      | q0 | k0 | v0 |               all rows, in the order of the sequence
//
// Ring. pass_on() sends a tensor to the next rank and receives that of the rank before, beside
// compute.
//
// On a GPU all of it is queued among the operations, except for messages between nodes. An error is
// found as in a TensorAxis.
//
// All ranks of the group call the same methods in the same order. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/comm/communicator.h"
#include "lockstep/nn/axis_cost.h"
#include "lockstep/ops/ops.h"
#include "lockstep/tensor/tensor.h"

namespace lockstep::nn {

// Rows of one rank, and how they are exchanged.
struct TokenRows {
  std::int64_t batch = 1;
  std::int64_t tokens = 0;  // of a sequence, on one rank
  std::span<const std::int64_t> segments;
};

class ContextAxis {
 public:
  // `group` has the ranks of the context group, in order, and is of the device that tensors lie on,
  // staged and with messages there (comm/device_communicator.h). It must outlive the axis.
  explicit ContextAxis(Communicator& group) : group_(group) {}

  int rank() const { return group_.rank(); }
  int size() const { return group_.size(); }

  // `tokens` is [batch * tokens, width], `heads` [batch * all tokens, width / ranks]. The
  // workspaces have as many elements or more; `received` may be the tensor that is read.
  void to_heads(Ops& ops, const TokenRows& rows, const Tensor& tokens, const Tensor& heads,
                const Tensor& sent, const Tensor& received);
  void to_tokens(Ops& ops, const TokenRows& rows, const Tensor& heads, const Tensor& tokens,
                 const Tensor& sent, const Tensor& received);

  // The sum over all ranks takes the place of x.
  void sum(Ops& ops, const Tensor& x);

  // A message to the next rank and one from the rank before it. Its tensors live until wait() has
  // returned. One that is dropped before, by an error, ends all calls of the group.
  class Messages {
   public:
    Messages(ContextAxis& axis, Work received, Work sent)
        : axis_(&axis), received_(std::move(received)), sent_(std::move(sent)) {}
    Messages() = default;  // that are queued: operations read them after they have come
    Messages(Messages&& other) noexcept
        : axis_(std::exchange(other.axis_, nullptr)),
          received_(std::move(other.received_)),
          sent_(std::move(other.sent_)) {}
    Messages& operator=(Messages&&) = delete;
    ~Messages();

    void wait();

   private:
    ContextAxis* axis_ = nullptr;  // nullptr: it was waited for
    std::optional<Work> received_;
    std::optional<Work> sent_;
  };
  Messages pass_on(Ops& ops, const Tensor& to_next, const Tensor& from_previous);

  // After the host has waited for the operations: throws the error of a call among them.
  void throw_failure() const;
  AxisCost take_cost();  // since the last call

 private:
  bool is_on_host() const { return group_.device() == Device{}; }
  template <class Body>
  void timed(Body&& body);
  // A call on what operations have written before it and read after it.
  void run(Ops& ops, const Call& call);
  // Block i of `sent` goes to rank i, whose block comes to its place in `received`.
  void exchange(Ops& ops, const Tensor& sent, const Tensor& received, std::int64_t elements);
  void queue_messages(Ops& ops, const Tensor& to_next, const Tensor& from_previous);
  int next() const { return (rank() + 1) % size(); }
  int previous() const { return (rank() + size() - 1) % size(); }

  Communicator& group_;
  AxisCost cost_;
};

}  // namespace lockstep::nn
