#include "lockstep/nn/expert_axis.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/device_communicator.h"

namespace lockstep::nn {
namespace {

// The elements of one rank's rows.
struct RankRows {
  std::size_t first = 0;
  std::size_t elements = 0;
};

std::vector<RankRows> rows_of_ranks(std::span<const std::size_t> counts, const Tensor& all) {
  const std::size_t width = all.elements() / static_cast<std::size_t>(all.shape()[0]);
  std::vector<RankRows> ranks;
  std::size_t first = 0;
  for (const std::size_t count : counts) {
    ranks.push_back({first, count * width});
    first += count * width;
  }
  return ranks;
}

std::vector<std::size_t> counts_of(std::span<const RankRows> ranks) {
  std::vector<std::size_t> counts;
  for (const RankRows& rows : ranks) counts.push_back(rows.elements);
  return counts;
}

std::size_t end_of(std::span<const RankRows> ranks) {
  return ranks.back().first + ranks.back().elements;
}

Tensor elements_of(const Tensor& all, const RankRows& rows) {
  return all.reshaped({static_cast<std::int64_t>(all.elements())})
      .slice(static_cast<std::int64_t>(rows.first), static_cast<std::int64_t>(rows.elements));
}

}  // namespace

template <class Body>
void ExpertAxis::timed(Communicator& group, Body&& body) {
  const auto begin = SteadyClock::now();
  const std::uint64_t before = group.bytes_sent();
  body();
  cost_.bytes_sent += group.bytes_sent() - before;
  if (group.device() == Device{}) cost_.seconds += seconds_since(begin);
}

void ExpertAxis::run(Ops& ops, const Call& call) {
  if (data_.device() == Device{}) ops.synchronize();
  timed(data_, [&] { ops.in_order([&] { data_.run(call); }); });
}

void ExpertAxis::exchange_counts(Ops& ops, const Tensor& counts, const Tensor& received) {
  run(ops, all_to_all(ConstData(counts.data(), counts.elements(), counts.dtype()),
                      Data(received.data(), received.elements(), received.dtype())));
}

void ExpertAxis::exchange_rows(Ops& ops, const Tensor& from, std::span<const std::size_t> sent,
                               const Tensor& to, std::span<const std::size_t> received) {
  if (data_.backend() == "cuda") return queue_rows(ops, from, sent, to, received);
  const std::vector<RankRows> out = rows_of_ranks(sent, from);
  const std::vector<RankRows> in = rows_of_ranks(received, to);
  run(ops, all_to_all_v(ConstData(from.data(), end_of(out), from.dtype()), counts_of(out),
                        Data(to.data(), end_of(in), to.dtype()), counts_of(in)));
}

// Calls whose blocks differ from rank to rank cannot be queued on memory of any place, so rows go
// as messages, in pieces that a mailbox has place for: all ranks send a piece to each other before
// they receive one.
void ExpertAxis::queue_rows(Ops& ops, const Tensor& from, std::span<const std::size_t> sent,
                            const Tensor& to, std::span<const std::size_t> received) {
  const std::vector<RankRows> out = rows_of_ranks(sent, from);
  const std::vector<RankRows> in = rows_of_ranks(received, to);
  const auto me = static_cast<std::size_t>(rank());
  const auto ranks = static_cast<std::size_t>(size());
  const std::size_t element = size_of(from.dtype());
  const std::size_t most = mailbox_piece_bytes(size()) / element;
  // Piece `done` of what goes to that rank or comes from it; without elements at the end.
  const auto piece = [&](const Tensor& all, const RankRows& rows, std::size_t done) {
    const std::size_t left = rows.elements - std::min(done, rows.elements);
    return elements_of(all, {rows.first + (rows.elements - left), std::min(most, left)});
  };
  std::size_t longest = 0;
  for (std::size_t other = 0; other < ranks; ++other) {
    if (other == me) continue;
    longest = std::max({longest, out[other].elements, in[other].elements});
    cost_.bytes_sent += out[other].elements * element;
  }
  ops.in_order([&] {
    if (in[me].elements > 0) copy(elements_of(to, in[me]), elements_of(from, out[me]));
    for (std::size_t done = 0; done < longest; done += most) {
      for (std::size_t step = 1; step < ranks; ++step) {
        const std::size_t next = (me + step) % ranks;
        const Tensor part = piece(from, out[next], done);
        if (part.elements() == 0) continue;
        data_.send(ConstData(part.data(), part.elements(), part.dtype()), static_cast<int>(next));
      }
      for (std::size_t step = 1; step < ranks; ++step) {
        const std::size_t previous = (me + ranks - step) % ranks;
        const Tensor part = piece(to, in[previous], done);
        if (part.elements() == 0) continue;
        data_.receive(Data(part.data(), part.elements(), part.dtype()), static_cast<int>(previous));
      }
    }
  });
}

void ExpertAxis::sum(std::span<double> numbers) {
  throw_failure();
  timed(group_, [&] { group_.all_reduce(numbers); });
}

void ExpertAxis::throw_failure() const {
  if (data_.device() == Device{}) return;
  if (const std::optional<Error> error = data_.failure()) throw *error;
}

AxisCost ExpertAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
