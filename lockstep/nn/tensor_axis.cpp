#include "lockstep/nn/tensor_axis.h"

#include <span>
#include <utility>

#include "lockstep/base/system/clock.h"

namespace lockstep::nn {

template <class Body>
void TensorAxis::timed(Body&& body) {
  const auto begin = SteadyClock::now();
  const std::uint64_t before = group_.bytes_sent();
  body();
  cost_.bytes_sent += group_.bytes_sent() - before;
  cost_.seconds += seconds_since(begin);
}

void TensorAxis::sum(Ops& ops, const Tensor& x) {
  ops.synchronize();
  timed([&] { group_.all_reduce(Data(x.data(), x.elements(), x.dtype())); });
}

double TensorAxis::sum(double mine) {
  timed([&] { group_.all_reduce(std::span(&mine, 1)); });
  return mine;
}

bool TensorAxis::any(bool mine) { return sum(mine ? 1.0 : 0.0) > 0; }

void TensorAxis::gather(Ops& ops, const Tensor& all) { gather_rows(ops, all.row(rank()), all); }

void TensorAxis::gather_rows(Ops& ops, const Tensor& mine, const Tensor& all) {
  ops.synchronize();
  timed([&] {
    group_.all_gather(ConstData(mine.data(), mine.elements(), mine.dtype()),
                      Data(all.data(), all.elements(), all.dtype()));
  });
}

void TensorAxis::scatter_sum(Ops& ops, const Tensor& all, const Tensor& mine) {
  ops.synchronize();
  timed([&] {
    group_.reduce_scatter(ConstData(all.data(), all.elements(), all.dtype()),
                          Data(mine.data(), mine.elements(), mine.dtype()));
  });
}

AxisCost TensorAxis::take_cost() { return std::exchange(cost_, {}); }

}  // namespace lockstep::nn
