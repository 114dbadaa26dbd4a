#include "lockstep/nn/pipeline_axis.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/system/clock.h"

namespace lockstep::nn {

template <class Body>
void PipelineAxis::timed(Body&& body) {
  const auto begin = SteadyClock::now();
  body();
  cost_.seconds += seconds_since(begin);
}

Work PipelineAxis::send(const Tensor& tensor, int stage) {
  cost_.bytes_sent += tensor.bytes();
  return data_.start(
      lockstep::send(ConstData(tensor.data(), tensor.elements(), tensor.dtype()), stage));
}

Work PipelineAxis::receive(const Tensor& tensor, int stage) {
  return data_.start(
      lockstep::receive(Data(tensor.data(), tensor.elements(), tensor.dtype()), stage));
}

void PipelineAxis::queue_send(Ops& ops, const Tensor& tensor, int stage) {
  cost_.bytes_sent += tensor.bytes();
  ops.in_order(
      [&] { data_.send(ConstData(tensor.data(), tensor.elements(), tensor.dtype()), stage); });
}

void PipelineAxis::queue_receive(Ops& ops, const Tensor& tensor, int stage) {
  ops.in_order(
      [&] { data_.receive(Data(tensor.data(), tensor.elements(), tensor.dtype()), stage); });
}

void PipelineAxis::throw_failure() const {
  if (!queues()) return;
  if (const std::optional<Error> error = data_.failure()) throw *error;
}

void PipelineAxis::wait(const Work& work) {
  timed([&] { work.wait(); });
}

std::vector<double> PipelineAxis::gather(std::span<const double> mine) {
  throw_failure();
  std::vector<double> all(mine.size() * static_cast<std::size_t>(stages()));
  timed([&] { group_.all_gather(mine, all); });
  return all;
}

std::vector<std::vector<double>> PipelineAxis::gather_lists(std::span<const double> mine) {
  const auto count = static_cast<double>(mine.size());
  const std::vector<double> counts = gather(std::span(&count, 1));
  std::vector<double> padded(mine.begin(), mine.end());
  const auto most = static_cast<std::size_t>(std::ranges::max(counts));
  if (most == 0) return std::vector<std::vector<double>>(counts.size());
  padded.resize(most);
  const std::vector<double> all = gather(padded);
  std::vector<std::vector<double>> lists;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(i * most);
    lists.emplace_back(first, first + static_cast<std::ptrdiff_t>(counts[i]));
  }
  return lists;
}

bool PipelineAxis::any(bool mine) {
  const double number = mine ? 1 : 0;
  return std::ranges::any_of(gather(std::span(&number, 1)), [](double x) { return x > 0; });
}

void PipelineAxis::sum(const Tensor& tensor, const std::vector<int>& holders) {
  const bool holds = std::ranges::find(holders, stage()) != holders.end();
  if (!holders_.contains(holders)) {
    holders_.emplace(holders, data_.split(holds ? 0 : -1, stage()));
  }
  Communicator* const group = holders_.find(holders)->second.get();
  if (!holds) return;
  const std::uint64_t before = group->bytes_sent();
  timed([&] { group->all_reduce(Data(tensor.data(), tensor.elements(), tensor.dtype())); });
  cost_.bytes_sent += group->bytes_sent() - before;
}

AxisCost PipelineAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
