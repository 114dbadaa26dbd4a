#include "lockstep/nn/tensor_axis.h"

#include <span>
#include <utility>

#include "lockstep/base/system/clock.h"

namespace lockstep::nn {

template <class Body>
void TensorAxis::timed(Communicator& group, Body&& body) {
  const auto begin = SteadyClock::now();
  const std::uint64_t before = group.bytes_sent();
  body();
  cost_.bytes_sent += group.bytes_sent() - before;
  if (group.device() == Device{}) cost_.seconds += seconds_since(begin);
}

void TensorAxis::run(Ops& ops, const Call& call) {
  if (data_.device() == Device{}) ops.synchronize();
  timed(data_, [&] { ops.in_order([&] { data_.run(call); }); });
}

void TensorAxis::sum(Ops& ops, const Tensor& x) {
  run(ops, all_reduce(Data(x.data(), x.elements(), x.dtype())));
}

void TensorAxis::sum(std::span<double> numbers) {
  throw_failure();
  timed(group_, [&] { group_.all_reduce(numbers); });
}

bool TensorAxis::any(bool mine) {
  double ranks = mine ? 1 : 0;
  sum(std::span(&ranks, 1));
  return ranks > 0;
}

void TensorAxis::gather(Ops& ops, const Tensor& all) { gather_rows(ops, all.row(rank()), all); }

void TensorAxis::gather_rows(Ops& ops, const Tensor& mine, const Tensor& all) {
  run(ops, all_gather(ConstData(mine.data(), mine.elements(), mine.dtype()),
                      Data(all.data(), all.elements(), all.dtype())));
}

void TensorAxis::scatter_sum(Ops& ops, const Tensor& all, const Tensor& mine) {
  run(ops, reduce_scatter(ConstData(all.data(), all.elements(), all.dtype()),
                          Data(mine.data(), mine.elements(), mine.dtype())));
}

bool TensorAxis::can_capture() const {
  return data_.backend() == "cuda" && group_.backend() != "threads";
}

void TensorAxis::throw_failure() const {
  if (data_.device() == Device{}) return;
  if (const std::optional<Error> error = data_.failure()) throw *error;
}

AxisCost TensorAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
