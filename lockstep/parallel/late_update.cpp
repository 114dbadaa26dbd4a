#include "lockstep/parallel/late_update.h"

#include <string_view>
#include <utility>

#include "lockstep/parallel/gradients/gradient_chunks.h"
#include "lockstep/parallel/gradients/model_norm.h"
#include "lockstep/parallel/gradients/shared_blocks.h"
#include "lockstep/parallel/offload/local_update.h"

namespace lockstep::parallel {

LateUpdate::~LateUpdate() {
  if (under_way()) {
    constexpr std::string_view kReason = "a rank did not finish its step";
    if (axes_.tensor != nullptr) axes_.tensor->abort(kReason);
    if (axes_.pipeline != nullptr) axes_.pipeline->abort(kReason);
  }
  thread_.settle();
}

void LateUpdate::start(nn::Replica& replica, Axes axes, Trace& trace) {
  replica_ = &replica;
  axes_ = axes;
  trace_ = &trace;
  ops_ = make_cpu_ops(1);
}

void LateUpdate::begin(bool stops, std::vector<double> numbers) {
  replica_->keep_gradients();
  agreement_ = std::make_shared<Agreement>();
  thread_.push([this, stops, numbers = std::move(numbers), to = agreement_] {
    *to = run(stops, numbers);
    return to->bytes_sent;
  });
}

LateUpdate::Agreement LateUpdate::run(bool stops, const std::vector<double>& numbers) {
  const TraceScope scope(*trace_,
                         {.lane = TraceLane::kCommunication, .kind = "agree", .of = "on the norm"});
  const Tensor& gradients = replica_->delayed_gradients();
  if (axes_.pipeline != nullptr) add_up_shared_blocks(*replica_, *axes_.pipeline, gradients);
  const std::vector<double> sums = sums_of_chunks(
      *ops_, gradients, gradient_chunks(replica_->flat()), replica_->sums_of_squares());
  std::vector<double> replicated;
  if (axes_.tensor != nullptr) {
    replicated = replicated_squares(*replica_, *ops_, [&](std::size_t block, nn::FlatRange range) {
      return delayed_states(*replica_, block).slice(range).gradients;
    });
    stops = axes_.tensor->any(stops);
  }
  Agreement agreement;
  const NormAxes axes{.tensor = axes_.tensor, .pipeline = axes_.pipeline};
  agreement.result = result_of(norm_of_model(*replica_, axes, sums, replicated), 1);
  agreement.stops = stops;
  agreement.numbers = {numbers};
  if (axes_.pipeline != nullptr) {
    agreement.stops = axes_.pipeline->any(stops);
    agreement.numbers = axes_.pipeline->gather_lists(numbers);
    agreement.bytes_sent += axes_.pipeline->take_cost().bytes_sent;
  }
  if (axes_.tensor != nullptr) agreement.bytes_sent += axes_.tensor->take_cost().bytes_sent;
  return agreement;
}

LateUpdate::Agreement LateUpdate::agree() {
  const TraceScope scope(*trace_, {.lane = TraceLane::kWaiting, .kind = "wait for", .of = "norm"});
  thread_.wait();
  thread_.take_cost();  // of what was no other's communication
  return std::move(*std::exchange(agreement_, nullptr));
}

void LateUpdate::update(const UpdateRequest& request, double gradient_norm) {
  const TraceScope scope(*trace_, {.lane = TraceLane::kCompute, .kind = "update"});
  for (std::size_t block = 0; block < replica_->flat().blocks(); ++block) {
    replica_->before_change(block);
    replica_->keep_version(block);
    update_delayed(*replica_, replica_->ops(), block, request, gradient_norm);
  }
  replica_->ops().synchronize();
  replica_->set_has_previous(true);
}

}  // namespace lockstep::parallel
