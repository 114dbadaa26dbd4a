#include "lockstep/cli/explain/recorded_ops.h"

namespace lockstep::cli {

template <class Call>
void RecordedOps::record(const Call& call, RecordedOp op) {
  ops_->run(call);
  std::erase_if(op.reads, [](const Tensor& tensor) { return !ops::is_given(tensor); });
  std::erase_if(op.writes, [](const Tensor& tensor) { return !ops::is_given(tensor); });
  recorded_.push_back(std::move(op));
}

void RecordedOps::run(const ops::Linear& call) {
  record(call, {.kind = "linear",
                .parameter = call.weight,
                .reads = {call.x, call.residual},
                .writes = {call.y}});
}
void RecordedOps::run(const ops::LinearActivation& call) {
  record(call, {.kind = "linear, activation",
                .parameter = call.weight,
                .reads = {call.x},
                .writes = {call.y, call.derivative, call.z}});
}
void RecordedOps::run(const ops::LinearBackwardInput& call) {
  record(call, {.kind = "dx",
                .parameter = call.weight,
                .reads = {call.dy, call.factor, call.z},
                .writes = {call.dx}});
}
void RecordedOps::run(const ops::LinearBackwardWeight& call) {
  record(call, {.kind = "dW",
                .parameter = call.dweight,
                .reads = {call.dy, call.x},
                .writes = {call.dweight}});
}
void RecordedOps::run(const ops::Activate& call) {
  record(call, {.kind = "activation",
                .parameter = {},
                .reads = {call.z},
                .writes = {call.y, call.derivative}});
}
void RecordedOps::run(const ops::Multiply& call) {
  record(call,
         {.kind = "multiply", .parameter = {}, .reads = {call.a, call.b}, .writes = {call.y}});
}
void RecordedOps::run(const ops::Add& call) {
  record(call, {.kind = "add", .parameter = {}, .reads = {call.a, call.b}, .writes = {call.y}});
}
void RecordedOps::run(const ops::SwiGlu& call) {
  record(call, {.kind = "swiglu", .parameter = {}, .reads = {call.gate_up}, .writes = {call.y}});
}
void RecordedOps::run(const ops::SwiGluBackward& call) {
  record(call, {.kind = "swiglu backward",
                .parameter = {},
                .reads = {call.gate_up, call.dy},
                .writes = {call.dgate_up}});
}
void RecordedOps::run(const ops::Drop& call) {
  record(call, {.kind = "dropout", .parameter = {}, .reads = {call.x}, .writes = {call.y}});
}
void RecordedOps::run(const ops::Cast& call) {
  record(call, {.kind = "cast", .parameter = {}, .reads = {call.from}, .writes = {call.to}});
}
void RecordedOps::run(const ops::Scale& call) {
  record(call, {.kind = "scale", .parameter = {}, .reads = {call.x}, .writes = {call.x}});
}
void RecordedOps::run(const ops::Norm& call) {
  record(call, {.kind = "norm",
                .parameter = call.gain,
                .reads = {call.x, call.branch},
                .writes = {call.sum, call.y, call.mean, call.rstd}});
}
void RecordedOps::run(const ops::NormBackward& call) {
  record(call, {.kind = "backward",
                .parameter = call.gain,
                .reads = {call.dy, call.sum, call.mean, call.rstd, call.dresidual},
                .writes = {call.dsum, call.dbranch, call.dgain}});
}
void RecordedOps::run(const ops::HeadNorm& call) {
  record(call, {.kind = "norm of heads",
                .parameter = call.gain,
                .reads = {call.x.rows},
                .writes = {call.y.rows, call.rstd}});
}
void RecordedOps::run(const ops::HeadNormBackward& call) {
  record(call, {.kind = "norm of heads backward",
                .parameter = call.gain,
                .reads = {call.dy.rows, call.x.rows, call.rstd},
                .writes = {call.dx.rows, call.dgain}});
}
void RecordedOps::run(const ops::Attention& call) {
  record(call, {.kind = "attention",
                .parameter = {},
                .reads = {call.q.rows},
                .writes = {call.out, call.log_sum}});
}
void RecordedOps::run(const ops::AttentionBackward& call) {
  record(call, {.kind = "attention backward",
                .parameter = {},
                .reads = {call.q.rows, call.out, call.log_sum, call.dout},
                .writes = {call.dq.rows}});
}
void RecordedOps::run(const ops::Rotary& call) {
  record(call, {.kind = call.backward ? "rotary backward" : "rotary",
                .parameter = {},
                .reads = {call.x.rows},
                .writes = {call.x.rows}});
}
void RecordedOps::run(const ops::Quantize& call) {
  record(call, {.kind = "quantize",
                .parameter = call.x,
                .reads = {call.x, call.z},
                .writes = {call.y, call.transposed}});
}
void RecordedOps::run(const ops::ScaledMatmul& call) {
  record(call, {.kind = "8-bit product",
                .parameter = call.y,
                .reads = {call.a, call.b, call.residual},
                .writes = {call.y}});
}

}  // namespace lockstep::cli
