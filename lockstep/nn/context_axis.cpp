#include "lockstep/nn/context_axis.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/device_communicator.h"

namespace lockstep::nn {
namespace {

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

// To blocks, one for each rank, or from them.
enum class Regroup { kPack, kUnpack };

void move_columns(Ops& ops, Regroup what, const ops::Heads& rows, const ops::Heads& block,
                  std::int64_t columns) {
  const bool packs = what == Regroup::kPack;
  ops.run(ops::CopyColumns{
      .from = packs ? rows : block, .to = packs ? block : rows, .columns = columns});
}

// Block i of a tensor that may have more elements than all blocks.
Tensor block_of(const Tensor& blocks, std::int64_t i, std::int64_t rows, std::int64_t width) {
  const auto all = static_cast<std::int64_t>(blocks.elements());
  return blocks.reshaped({all}).slice(i * rows * width, rows * width).reshaped({rows, width});
}

// Between rows of tokens and blocks [ranks, batch * tokens, width / ranks].
void regroup_columns(Ops& ops, Regroup what, const TokenRows& rows, int ranks, const Tensor& tokens,
                     const Tensor& blocks) {
  const std::int64_t width =
      std::accumulate(rows.segments.begin(), rows.segments.end(), std::int64_t{0});
  const std::int64_t count = rows.batch * rows.tokens;
  const Tensor all = block_of(tokens, 0, count, width);
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor block = block_of(blocks, rank, count, width / ranks);
    std::int64_t first = 0;
    for (const std::int64_t segment : rows.segments) {
      const std::int64_t share = segment / ranks;
      move_columns(ops, what, {all, first + rank * share}, {block, first / ranks}, share);
      first += segment;
    }
  }
}

// Between [batch, ranks, tokens, width], the order of sequences, and blocks [ranks, batch, ...].
void regroup_sequences(Ops& ops, Regroup what, const TokenRows& rows, int ranks, std::int64_t width,
                       const Tensor& sequences, const Tensor& blocks) {
  const std::int64_t part = rows.tokens * width;  // of a sequence
  const Tensor all = block_of(sequences, 0, rows.batch, ranks * part);
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor block = block_of(blocks, rank, rows.batch, part);
    move_columns(ops, what, {all, rank * part}, {block, 0}, part);
  }
}

}  // namespace

template <class Body>
void ContextAxis::timed(Body&& body) {
  const auto begin = SteadyClock::now();
  body();
  if (is_on_host()) cost_.seconds += seconds_since(begin);
}

void ContextAxis::run(Ops& ops, const Call& call) {
  if (is_on_host()) ops.synchronize();
  const std::uint64_t before = group_.bytes_sent();
  timed([&] { ops.in_order([&] { group_.run(call); }); });
  cost_.bytes_sent += group_.bytes_sent() - before;
}

void ContextAxis::exchange(Ops& ops, const Tensor& sent, const Tensor& received,
                           std::int64_t elements) {
  run(ops, all_to_all(ConstData(sent.data(), index(elements), sent.dtype()),
                      Data(received.data(), index(elements), received.dtype())));
}

void ContextAxis::to_heads(Ops& ops, const TokenRows& rows, const Tensor& tokens,
                           const Tensor& heads, const Tensor& sent, const Tensor& received) {
  const std::int64_t width = heads.shape()[1];
  regroup_columns(ops, Regroup::kPack, rows, size(), tokens, sent);
  exchange(ops, sent, received, static_cast<std::int64_t>(tokens.elements()));
  regroup_sequences(ops, Regroup::kUnpack, rows, size(), width, heads, received);
}

void ContextAxis::to_tokens(Ops& ops, const TokenRows& rows, const Tensor& heads,
                            const Tensor& tokens, const Tensor& sent, const Tensor& received) {
  const std::int64_t width = heads.shape()[1];
  regroup_sequences(ops, Regroup::kPack, rows, size(), width, heads, sent);
  exchange(ops, sent, received, static_cast<std::int64_t>(heads.elements()));
  regroup_columns(ops, Regroup::kUnpack, rows, size(), tokens, received);
}

void ContextAxis::sum(Ops& ops, const Tensor& x) {
  run(ops, all_reduce(Data(x.data(), x.elements(), x.dtype())));
}

ContextAxis::Messages ContextAxis::pass_on(Ops& ops, const Tensor& to_next,
                                           const Tensor& from_previous) {
  cost_.bytes_sent += to_next.bytes();
  if (group_.backend() == "cuda") {
    queue_messages(ops, to_next, from_previous);
    return {};
  }
  ops.synchronize();
  Work received = group_.start(receive(
      Data(from_previous.data(), from_previous.elements(), from_previous.dtype()), previous()));
  Work sent =
      group_.start(send(ConstData(to_next.data(), to_next.elements(), to_next.dtype()), next()));
  return {*this, std::move(received), std::move(sent)};
}

// In pieces that a mailbox has place for: all ranks send before they receive.
void ContextAxis::queue_messages(Ops& ops, const Tensor& to_next, const Tensor& from_previous) {
  const std::size_t element = size_of(to_next.dtype());
  const std::size_t most = mailbox_piece_bytes(size()) / element;
  const std::size_t count = to_next.elements();
  ops.in_order([&] {
    for (std::size_t done = 0; done < count; done += most) {
      const std::size_t now = std::min(most, count - done);
      group_.send(ConstData(to_next.data() + done * element, now, to_next.dtype()), next());
      group_.receive(Data(from_previous.data() + done * element, now, from_previous.dtype()),
                     previous());
    }
  });
}

void ContextAxis::Messages::wait() {
  if (axis_ == nullptr) return;
  axis_->timed([&] {
    received_->wait();
    sent_->wait();
  });
  axis_ = nullptr;
}

ContextAxis::Messages::~Messages() {
  if (axis_ == nullptr) return;
  try {
    axis_->group_.abort("a rank of the context group did not finish its attention");
  } catch (const Error&) {
    // The messages end with their own errors.
  }
  for (const std::optional<Work>* const work : {&received_, &sent_}) {
    try {
      (*work)->wait();
    } catch (const Error&) {
      // The error that ended the attention is reported.
    }
  }
}

void ContextAxis::throw_failure() const {
  if (is_on_host()) return;
  if (const std::optional<Error> error = group_.failure()) throw *error;
}

AxisCost ContextAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
