#include "lockstep/nn/expert_axis.h"

#include <numeric>
#include <utility>

#include "lockstep/base/system/clock.h"

namespace lockstep::nn {

template <class Body>
void ExpertAxis::timed(Body&& body) {
  const auto begin = SteadyClock::now();
  const std::uint64_t before = group_.bytes_sent();
  body();
  cost_.bytes_sent += group_.bytes_sent() - before;
  cost_.seconds += seconds_since(begin);
}

void ExpertAxis::exchange_counts(Ops& ops, const Tensor& counts, const Tensor& received) {
  ops.synchronize();
  timed([&] {
    group_.all_to_all(ConstData(counts.data(), counts.elements(), counts.dtype()),
                      Data(received.data(), received.elements(), received.dtype()));
  });
}

void ExpertAxis::exchange_rows(Ops& ops, const Tensor& from, std::span<const std::size_t> sent,
                               const Tensor& to, std::span<const std::size_t> received) {
  ops.synchronize();
  const std::size_t width = from.elements() / static_cast<std::size_t>(from.shape()[0]);
  const auto elements = [&](std::span<const std::size_t> rows) {
    std::vector<std::size_t> counts(rows.begin(), rows.end());
    for (std::size_t& count : counts) count *= width;
    return counts;
  };
  const auto total = [](const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  };
  const std::vector<std::size_t> in = elements(sent);
  const std::vector<std::size_t> out = elements(received);
  timed([&] {
    group_.all_to_all_v(ConstData(from.data(), total(in), from.dtype()), in,
                        Data(to.data(), total(out), to.dtype()), out);
  });
}

void ExpertAxis::sum(std::span<double> numbers) {
  timed([&] { group_.all_reduce(numbers); });
}

AxisCost ExpertAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
