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

void TensorAxis::Sums::start(Ops& ops, const Tensor& x) {
  if (axis_.data_.device() != Device{}) return axis_.sum(ops, x);  // queued: the host does not wait
  ops.synchronize();
  if (started_.empty()) sent_before_ = axis_.data_.bytes_sent();
  started_.push_back(axis_.data_.start(all_reduce(Data(x.data(), x.elements(), x.dtype()))));
}

void TensorAxis::Sums::wait() {
  if (started_.empty()) return;
  const auto begin = SteadyClock::now();
  for (const Work& work : started_) work.wait();
  axis_.cost_.seconds += seconds_since(begin);
  axis_.cost_.bytes_sent += axis_.data_.bytes_sent() - sent_before_;
  started_.clear();
}

TensorAxis::Sums::~Sums() {
  if (started_.empty()) return;
  try {
    axis_.data_.abort("a rank of the tensor group did not finish a product");
  } catch (const Error&) {
    // The sums end with their own errors.
  }
  for (const Work& work : started_) {
    try {
      work.wait();
    } catch (const Error&) {
      // The error that ended the product is reported.
    }
  }
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
