#include "lockstep/nn/context_axis.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"

namespace lockstep::nn {
namespace {

void check_host(const Tensor& tensor) {
  if (tensor.device() == Device{}) return;
  fail(ErrorCode::kUnsupported,
       "context groups exchange tokens in host memory, but a tensor is on {}; use run.device = "
       "\"cpu\"",
       name(tensor.device()));
}

std::size_t index(std::int64_t number) { return static_cast<std::size_t>(number); }

// To blocks, one for each rank, or from them.
enum class Regroup { kPack, kUnpack };

void move_bytes(Regroup what, std::byte* rows, std::byte* block, std::size_t bytes) {
  what == Regroup::kPack ? std::memcpy(block, rows, bytes) : std::memcpy(rows, block, bytes);
}

// Between rows of tokens and blocks [ranks, batch * tokens, width / ranks].
void regroup_columns(Regroup what, const TokenRows& rows, int ranks, const Tensor& tokens,
                     const Tensor& blocks) {
  const std::size_t size = size_of(tokens.dtype());
  const std::int64_t width =
      std::accumulate(rows.segments.begin(), rows.segments.end(), std::int64_t{0});
  std::byte* block = blocks.data();
  for (int rank = 0; rank < ranks; ++rank) {
    for (std::int64_t row = 0; row < rows.batch * rows.tokens; ++row) {
      std::int64_t first = 0;
      for (const std::int64_t segment : rows.segments) {
        const std::int64_t share = segment / ranks;
        std::byte* const at = tokens.data() + index(row * width + first + rank * share) * size;
        const std::size_t bytes = index(share) * size;
        move_bytes(what, at, block, bytes);
        block += bytes;
        first += segment;
      }
    }
  }
}

// Between [batch, ranks, tokens, width], the order of sequences, and blocks [ranks, batch, ...].
void regroup_sequences(Regroup what, const TokenRows& rows, int ranks, std::int64_t width,
                       const Tensor& sequences, const Tensor& blocks) {
  const std::size_t bytes = index(rows.tokens * width) * size_of(sequences.dtype());
  for (std::int64_t sequence = 0; sequence < rows.batch; ++sequence) {
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::byte* const at = sequences.data() + index(sequence * ranks + rank) * bytes;
      std::byte* const block = blocks.data() + index(rank * rows.batch + sequence) * bytes;
      move_bytes(what, at, block, bytes);
    }
  }
}

}  // namespace

template <class Body>
void ContextAxis::timed(Body&& body) {
  const auto begin = SteadyClock::now();
  body();
  cost_.seconds += seconds_since(begin);
}

void ContextAxis::exchange(const Tensor& sent, const Tensor& received, std::int64_t elements) {
  const std::uint64_t before = group_.bytes_sent();
  timed([&] {
    group_.all_to_all(ConstData(sent.data(), index(elements), sent.dtype()),
                      Data(received.data(), index(elements), received.dtype()));
  });
  cost_.bytes_sent += group_.bytes_sent() - before;
}

void ContextAxis::to_heads(Ops& ops, const TokenRows& rows, const Tensor& tokens,
                           const Tensor& heads, const Tensor& sent, const Tensor& received) {
  check_host(tokens);
  ops.synchronize();
  const std::int64_t width = heads.shape()[1];
  regroup_columns(Regroup::kPack, rows, size(), tokens, sent);
  exchange(sent, received, static_cast<std::int64_t>(tokens.elements()));
  regroup_sequences(Regroup::kUnpack, rows, size(), width, heads, received);
}

void ContextAxis::to_tokens(Ops& ops, const TokenRows& rows, const Tensor& heads,
                            const Tensor& tokens, const Tensor& sent, const Tensor& received) {
  check_host(heads);
  ops.synchronize();
  const std::int64_t width = heads.shape()[1];
  regroup_sequences(Regroup::kPack, rows, size(), width, heads, sent);
  exchange(sent, received, static_cast<std::int64_t>(heads.elements()));
  regroup_columns(Regroup::kUnpack, rows, size(), tokens, received);
}

void ContextAxis::sum(Ops& ops, const Tensor& x) {
  check_host(x);
  ops.synchronize();
  const std::uint64_t before = group_.bytes_sent();
  timed([&] { group_.all_reduce(Data(x.data(), x.elements(), x.dtype())); });
  cost_.bytes_sent += group_.bytes_sent() - before;
}

ContextAxis::Messages ContextAxis::pass_on(Ops& ops, const Tensor& to_next,
                                           const Tensor& from_previous) {
  check_host(to_next);
  ops.synchronize();
  const int next = (rank() + 1) % size();
  const int previous = (rank() + size() - 1) % size();
  cost_.bytes_sent += to_next.bytes();
  Work received = group_.start(receive(
      Data(from_previous.data(), from_previous.elements(), from_previous.dtype()), previous));
  Work sent =
      group_.start(send(ConstData(to_next.data(), to_next.elements(), to_next.dtype()), next));
  return {*this, std::move(received), std::move(sent)};
}

void ContextAxis::Messages::wait() {
  axis_->timed([&] {
    received_.wait();
    sent_.wait();
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
  for (const Work* const work : {&received_, &sent_}) {
    try {
      work->wait();
    } catch (const Error&) {
      // The error that ended the attention is reported.
    }
  }
}

AxisCost ContextAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
