#include "lockstep/ops/timed_ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace lockstep {
namespace {

// Of a product with a weight [out, in].
double linear_flops(const Tensor& rows, const Tensor& weight) {
  return 2.0 * static_cast<double>(rows.shape()[0]) * static_cast<double>(weight.elements());
}

std::string linear_text(std::string_view pass, const Tensor& weight) {
  return fmt::format("linear{}, {} to {}", pass, weight.shape()[1], weight.shape()[0]);
}

// The FLOPs of this many products over all pairs of a query and a key that it attends to.
double attention_flops(const ops::AttentionShape& shape, int products) {
  const std::int64_t seeing =
      shape.causal ? std::min(shape.queries, shape.keys) : shape.queries;  // see a key at all
  const std::int64_t unseen = shape.causal ? seeing * (seeing - 1) / 2 : 0;
  // Queries with more keys before them than a window has, and what it hides from them.
  const std::int64_t hidden = shape.window > 0 ? shape.keys - shape.window : 0;
  const std::int64_t cut = std::clamp(hidden, std::int64_t{0}, seeing);
  const std::int64_t outside = cut * hidden - cut * (cut - 1) / 2;
  const std::int64_t pairs = shape.batch * shape.heads * (seeing * shape.keys - unseen - outside);
  return 2.0 * products * static_cast<double>(pairs) * static_cast<double>(shape.head_size);
}

}  // namespace

std::vector<OpTime> total_times(const std::vector<OpCall>& calls) {
  std::map<std::string, OpTime> by_operation;
  for (const OpCall& call : calls) {
    OpTime& all = by_operation[call.operation];
    all.operation = call.operation;
    ++all.calls;
    all.seconds += call.end.seconds_since(call.begin);
    all.flops += call.flops;
  }
  std::vector<OpTime> times;
  for (const auto& [_, one] : by_operation) times.push_back(one);
  std::stable_sort(times.begin(), times.end(),
                   [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return times;
}

void TimedOps::start() {
  calls_.clear();
  notes_ = true;
}

std::vector<OpCall> TimedOps::stop() {
  notes_ = false;
  return std::exchange(calls_, {});
}

template <class Call, class KindOf>
void TimedOps::time(const Call& call, KindOf&& kind) {
  if (!notes_) return ops_.run(call);
  Moment begin = ops_.moment();
  ops_.run(call);
  Kind what = kind();
  calls_.push_back({std::move(what.operation), what.flops, std::move(begin), ops_.moment()});
}

template <class Call>
void TimedOps::time_as(const Call& call, std::string_view operation) {
  time(call, [&]() -> Kind { return {std::string(operation)}; });
}

void TimedOps::run(const ops::Linear& call) {
  time(call, [&]() -> Kind {
    return {linear_text("", call.weight), linear_flops(call.x, call.weight)};
  });
}
void TimedOps::run(const ops::LinearActivation& call) {
  time(call, [&]() -> Kind {
    return {linear_text(" with activation", call.weight), linear_flops(call.x, call.weight)};
  });
}
void TimedOps::run(const ops::LinearBackwardInput& call) {
  time(call, [&]() -> Kind {
    return {linear_text(", gradient of input", call.weight), linear_flops(call.dy, call.weight)};
  });
}
void TimedOps::run(const ops::LinearBackwardWeight& call) {
  time(call, [&]() -> Kind {
    return {linear_text(", gradient of weight", call.dweight), linear_flops(call.x, call.dweight)};
  });
}
void TimedOps::run(const ops::Activate& call) { time_as(call, "activation"); }
void TimedOps::run(const ops::Multiply& call) { time_as(call, "multiply"); }
void TimedOps::run(const ops::Add& call) { time_as(call, "add"); }
void TimedOps::run(const ops::SwiGlu& call) { time_as(call, "swiglu"); }
void TimedOps::run(const ops::SwiGluBackward& call) { time_as(call, "swiglu, backward"); }
void TimedOps::run(const ops::Drop& call) { time_as(call, "dropout"); }
void TimedOps::run(const ops::Cast& call) { time_as(call, "cast"); }
void TimedOps::run(const ops::Scale& call) { time_as(call, "scale"); }
void TimedOps::run(const ops::SoftCap& call) { time_as(call, "soft cap"); }
void TimedOps::run(const ops::Norm& call) { time_as(call, "norm"); }
void TimedOps::run(const ops::NormBackward& call) { time_as(call, "norm, backward"); }
void TimedOps::run(const ops::Embedding& call) { time_as(call, "embedding"); }
void TimedOps::run(const ops::EmbeddingBackward& call) { time_as(call, "embedding, backward"); }
void TimedOps::run(const ops::Attention& call) {
  constexpr int kProducts = 2;  // scores and outputs
  time(call, [&]() -> Kind { return {"attention", attention_flops(call.shape, kProducts)}; });
}
void TimedOps::run(const ops::AttentionBackward& call) {
  constexpr int kProducts = 5;  // scores again, and the gradients of scores, queries, keys, values
  time(call, [&]() -> Kind {
    return {"attention, backward", attention_flops(call.shape, kProducts)};
  });
}
void TimedOps::run(const ops::MergeAttention& call) { time_as(call, "merge of attention"); }
void TimedOps::run(const ops::CopyColumns& call) { time_as(call, "copy of columns"); }
void TimedOps::run(const ops::Route& call) { time_as(call, "routing"); }
void TimedOps::run(const ops::RouteBackward& call) { time_as(call, "routing"); }
void TimedOps::run(const ops::GatherTokens& call) { time_as(call, "rows to experts"); }
void TimedOps::run(const ops::CombineTokens& call) { time_as(call, "rows of experts"); }
void TimedOps::run(const ops::WeightRows& call) { time_as(call, "rows of experts"); }
void TimedOps::run(const ops::AddCounts& call) { time_as(call, "balance of experts"); }
void TimedOps::run(const ops::CountTargets& call) { time_as(call, "balance of experts"); }
void TimedOps::run(const ops::BalanceExperts& call) { time_as(call, "balance of experts"); }
void TimedOps::run(const ops::HeadNorm& call) { time_as(call, "norm of heads"); }
void TimedOps::run(const ops::HeadNormBackward& call) { time_as(call, "norm of heads, backward"); }
void TimedOps::run(const ops::Rotary& call) { time_as(call, "rotary"); }
void TimedOps::run(const ops::LogitStatistics& call) { time_as(call, "cross-entropy"); }
void TimedOps::run(const ops::CrossEntropy& call) { time_as(call, "cross-entropy"); }
void TimedOps::run(const ops::SquaredError& call) { time_as(call, "squared error"); }
void TimedOps::run(const ops::Adam& call) { time_as(call, "adam"); }
void TimedOps::run(const ops::Sgd& call) { time_as(call, "sgd"); }
void TimedOps::run(const ops::SumOfSquares& call) { time_as(call, "sum of squares"); }
void TimedOps::run(const ops::AdamSegments& call) { time_as(call, "adam"); }
void TimedOps::run(const ops::ChunkedSumOfSquares& call) { time_as(call, "sum of squares"); }
void TimedOps::run(const ops::ClipScale& call) { time_as(call, "clipping"); }
void TimedOps::run(const ops::DecodeAttention& call) { time_as(call, "attention, one token"); }
void TimedOps::run(const ops::Sample& call) { time_as(call, "sampling"); }
void TimedOps::run(const ops::RelativeBias& call) { time_as(call, "relative bias"); }
void TimedOps::run(const ops::RelativeBiasBackward& call) {
  time_as(call, "relative bias, backward");
}
void TimedOps::run(const ops::Quantize& call) { time_as(call, "quantize"); }
void TimedOps::run(const ops::ScaledMatmul& call) {
  time(call, [&]() -> Kind {
    const std::int64_t inner = call.a.shape()[1];
    return {fmt::format("scaled matmul, {} x {} x {}", call.y.shape()[0], call.y.shape()[1], inner),
            2.0 * static_cast<double>(call.y.elements()) * static_cast<double>(inner)};
  });
}
void TimedOps::run(const ops::UpdateScaling& call) { time_as(call, "update of scales"); }

}  // namespace lockstep
