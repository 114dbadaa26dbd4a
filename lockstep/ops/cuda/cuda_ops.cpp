#include "lockstep/ops/cuda/cuda_ops.h"

#include <cstdlib>
#include <string_view>
#include <type_traits>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/ops/check.h"
#include "lockstep/ops/cuda/attention/attention.h"
#include "lockstep/ops/cuda/attention/decode.h"
#include "lockstep/ops/cuda/attention/merge.h"
#include "lockstep/ops/cuda/attention/relative_bias.h"
#include "lockstep/ops/cuda/elementwise/columns.h"
#include "lockstep/ops/cuda/elementwise/elementwise.h"
#include "lockstep/ops/cuda/elementwise/rotary.h"
#include "lockstep/ops/cuda/elementwise/swiglu.h"
#include "lockstep/ops/cuda/embedding/embedding.h"
#include "lockstep/ops/cuda/float8/float8.h"
#include "lockstep/ops/cuda/graph.h"
#include "lockstep/ops/cuda/loss/loss.h"
#include "lockstep/ops/cuda/norm/heads.h"
#include "lockstep/ops/cuda/norm/norm.h"
#include "lockstep/ops/cuda/optimizer/optimizer.h"
#include "lockstep/ops/cuda/routing/routing.h"
#include "lockstep/ops/cuda/sample/sample.h"
#include "lockstep/ops/cuda_module.h"
#include "lockstep/ops/gpu_limits.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"
#include "lockstep/tensor/cuda/event.h"
#include "lockstep/tensor/cuda/memory.h"

namespace lockstep::cuda {
namespace {

// The alignment of a workspace. Scratch memory may begin anywhere, so its requested size includes
// padding for it.
constexpr std::size_t kWorkspaceAlignment = 256;

std::size_t with_alignment(std::size_t bytes) {
  return bytes == 0 ? 0 : bytes + kWorkspaceAlignment;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "asking a GPU for its properties");
  return value;
}

double* allocate_partials() {
  void* data = nullptr;
  check(cudaMalloc(&data, Context::kPartials * sizeof(double)), "allocating memory for sums");
  return static_cast<double*>(data);
}

unsigned* allocate_tickets(cudaStream_t stream) {
  void* data = nullptr;
  constexpr std::size_t kBytes = Context::kTickets * sizeof(unsigned);
  check(cudaMalloc(&data, kBytes), "allocating counters");
  check(cudaMemsetAsync(data, 0, kBytes, stream), "clearing counters");
  return static_cast<unsigned*>(data);
}

// From Hopper on, unless LOCKSTEP_OVERLAP=0.
bool overlaps_kernels(int capability) {
  const char* setting = std::getenv("LOCKSTEP_OVERLAP");
  return capability >= 90 && (setting == nullptr || std::string_view(setting) != "0");
}

Context make_context(int index, cudaStream_t stream, Faults* faults) {
  const GpuInfo& gpu = devices().all.at(static_cast<std::size_t>(index));
  return {.device = index,
          .capability = gpu.capability,
          .multiprocessors = gpu.multiprocessors,
          .shared_memory =
              static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index)),
          .stream = stream,
          .faults = faults,
          .partials = allocate_partials(),
          .tickets = allocate_tickets(stream),
          .overlaps_kernels = overlaps_kernels(gpu.capability)};
}

}  // namespace

CudaOps::CudaOps(int index)
    : stream_(index),
      faults_(stream_.get()),
      context_(make_context(index, stream_.get(), faults_.on_device())),
      name_(fmt::format("{}, {}", lockstep::name(Device{DeviceKind::kCuda, index}),
                        devices().all.at(static_cast<std::size_t>(index)).name)),
      linear_(context_) {
  cuda::check(cudaEventCreateWithFlags(&turn_, cudaEventDisableTiming), "making an event");
}

CudaOps::~CudaOps() {
  if (capture_ != nullptr) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(stream(), &unfinished);
    if (unfinished != nullptr) cudaGraphDestroy(unfinished);
  }
  cudaSetDevice(context_.device);
  cudaStreamSynchronize(stream());
  cudaEventDestroy(turn_);
  cuda::free_on_gpu(context_.partials);
  cuda::free_on_gpu(context_.tickets);
  cudaGetLastError();
}

// ---- operations

void CudaOps::follow(cudaStream_t later, cudaStream_t earlier) {
  cuda::check(cudaEventRecord(turn_, earlier), "recording an event");
  cuda::check(cudaStreamWaitEvent(later, turn_, 0), "waiting for an event");
}

template <class Work>
void CudaOps::queue(Work&& work) {
  use_device(context_.device);
  const cudaStream_t around = CurrentStream::get();
  const bool is_guest = around != nullptr && around != stream();
  if (is_guest) follow(stream(), around);
  work();
  if (is_guest) follow(around, stream());
}

template <class Call>
void CudaOps::check(const Call& call) const {
  ops::check(call, {.device = device(), .z = true});
}

template <class Call>
void CudaOps::check_and_run(const Call& call) {
  check(call);
  run_checked(call);
}

template <class Call>
void CudaOps::run_checked(const Call& call) {
  if constexpr (requires { faults_.expect(call); }) {
    faults_.expect(call);
    if (capture_ != nullptr) captured_may_fault_ = true;
  }
  queue([&] { cuda::run(context_, call); });
}

template <class Call>
void CudaOps::check_and_run_linear(const Call& call) {
  check(call);
  queue([&] { linear_.run(context_, call); });
}

void CudaOps::run(const ops::Linear& call) { check_and_run_linear(call); }
void CudaOps::run(const ops::LinearActivation& call) { check_and_run_linear(call); }
void CudaOps::run(const ops::LinearBackwardInput& call) {
  if (ops::is_given(call.z) && !differentiates_from_input(call.activation)) {
    fail(ErrorCode::kUnsupported, "linear_backward_input: z is taken with GELU of the tanh kind");
  }
  check_and_run_linear(call);
}
void CudaOps::run(const ops::LinearBackwardWeight& call) { check_and_run_linear(call); }
void CudaOps::run(const ops::Activate& call) { check_and_run(call); }
void CudaOps::run(const ops::Multiply& call) { check_and_run(call); }
void CudaOps::run(const ops::Add& call) { check_and_run(call); }
void CudaOps::run(const ops::SwiGlu& call) { check_and_run(call); }
void CudaOps::run(const ops::SwiGluBackward& call) { check_and_run(call); }
void CudaOps::run(const ops::Drop& call) { check_and_run(call); }
void CudaOps::run(const ops::Cast& call) { check_and_run(call); }
void CudaOps::run(const ops::Scale& call) { check_and_run(call); }
void CudaOps::run(const ops::SoftCap& call) { check_and_run(call); }
void CudaOps::run(const ops::Norm& call) { check_and_run(call); }
void CudaOps::run(const ops::NormBackward& call) {
  check(call);  // before its shapes determine the workspace
  scratch_memory(norm_scratch(call.sum.shape()[0], call.sum.shape()[1]));
  run_checked(call);
}
void CudaOps::run(const ops::Embedding& call) { check_and_run(call); }
void CudaOps::run(const ops::EmbeddingBackward& call) {
  check(call);
  const Tensor& table = call.dtokens_table;
  scratch_memory(embedding_scratch(call.dy.shape()[0], call.dy.shape()[1],
                                   ops::is_given(table) ? table.shape()[0] : 0));
  run_checked(call);
}
void CudaOps::run(const ops::Attention& call) {
  check(call);
  scratch_memory(scratch(call.shape));
  run_checked(call);
}
void CudaOps::run(const ops::AttentionBackward& call) {
  check(call);
  scratch_memory(scratch(call.shape));
  run_checked(call);
}
void CudaOps::run(const ops::Rotary& call) {
  check(call);
  if (call.slowing.elements() > static_cast<std::size_t>(ops::kMostSlowedPairs)) {
    fail(ErrorCode::kUnsupported,
         "rotary: a GPU slows down at most {} pairs of a head each by its own factor, not {}; use "
         "the CPU",
         ops::kMostSlowedPairs, call.slowing.elements());
  }
  run_checked(call);
}
void CudaOps::run(const ops::LogitStatistics& call) { check_and_run(call); }
void CudaOps::run(const ops::CrossEntropy& call) { check_and_run(call); }
void CudaOps::run(const ops::SquaredError& call) { check_and_run(call); }
void CudaOps::run(const ops::Adam& call) { check_and_run(call); }
void CudaOps::run(const ops::Sgd& call) { check_and_run(call); }
void CudaOps::run(const ops::SumOfSquares& call) { check_and_run(call); }
void CudaOps::run(const ops::AdamSegments& call) { check_and_run(call); }
void CudaOps::run(const ops::ChunkedSumOfSquares& call) { check_and_run(call); }
void CudaOps::run(const ops::ClipScale& call) { check_and_run(call); }
void CudaOps::run(const ops::DecodeAttention& call) {
  check(call);
  scratch_memory(decode_attention_scratch({.batch = call.packed.shape()[0],
                                           .queries = 1,
                                           .keys = call.cache.shape()[1],
                                           .heads = call.heads,
                                           .kv_heads = call.kv_heads,
                                           .head_size = call.head_size,
                                           .causal = true,
                                           .dtype = call.packed.dtype()}));
  run_checked(call);
}
void CudaOps::run(const ops::Sample& call) {
  check(call);
  if (call.logits.shape()[0] > Context::kPartials) {
    fail(ErrorCode::kUnsupported, "sample: a GPU samples at most {} tokens at once, not {}",
         Context::kPartials, call.logits.shape()[0]);
  }
  run_checked(call);
}
void CudaOps::run(const ops::Quantize& call) {
  check(call);
  if (ops::is_given(call.dbias)) {
    const Shape& shape = ops::quantized_from(call).shape();
    scratch_memory(with_alignment(quantize_bytes(shape[0], shape[1])));
  }
  run_checked(call);
}
void CudaOps::run(const ops::ScaledMatmul& call) { check_and_run_linear(call); }
void CudaOps::run(const ops::UpdateScaling& call) { check_and_run(call); }
void CudaOps::run(const ops::MergeAttention& call) { check_and_run(call); }
void CudaOps::run(const ops::CopyColumns& call) { check_and_run(call); }
void CudaOps::run(const ops::HeadNorm& call) { check_and_run(call); }
void CudaOps::run(const ops::HeadNormBackward& call) {
  check(call);
  if (call.head_size > kMostNormedHead) {
    fail(ErrorCode::kUnsupported,
         "head_norm_backward: a GPU takes heads of at most {} elements, not {}", kMostNormedHead,
         call.head_size);
  }
  run_checked(call);
}
void CudaOps::run(const ops::Route& call) {
  check(call);
  if (call.logits.shape()[1] > kMostExperts) {
    fail(ErrorCode::kUnsupported, "route: a GPU routes to at most {} experts, not {}", kMostExperts,
         call.logits.shape()[1]);
  }
  run_checked(call);
}
void CudaOps::run(const ops::RouteBackward& call) { check_and_run(call); }
void CudaOps::run(const ops::GatherTokens& call) { check_and_run(call); }
void CudaOps::run(const ops::CombineTokens& call) { check_and_run(call); }
void CudaOps::run(const ops::WeightRows& call) { check_and_run(call); }
void CudaOps::run(const ops::AddCounts& call) { check_and_run(call); }
void CudaOps::run(const ops::CountTargets& call) { check_and_run(call); }
void CudaOps::run(const ops::BalanceExperts& call) { check_and_run(call); }
void CudaOps::run(const ops::RelativeBias& call) { check_and_run(call); }
void CudaOps::run(const ops::RelativeBiasBackward& call) { check_and_run(call); }

std::string CudaOps::implementation(const LinearShape& shape, LinearPass pass) const {
  return linear_.implementation(shape, pass);
}

// ---- scratch memory

std::size_t CudaOps::scratch(const LinearShape& shape) const {
  return with_alignment(linear_.scratch(shape));
}
std::size_t CudaOps::scratch(const ops::AttentionShape& shape) const {
  return with_alignment(attention_scratch(context_, shape));
}
std::size_t CudaOps::decode_attention_scratch(const ops::AttentionShape& shape) const {
  return with_alignment(cuda::decode_attention_scratch(shape));
}
std::size_t CudaOps::norm_scratch(std::int64_t rows, std::int64_t width) const {
  return with_alignment(cuda::norm_scratch(context_, rows, width));
}
std::size_t CudaOps::embedding_scratch(std::int64_t rows, std::int64_t width,
                                       std::int64_t /*classes*/) const {
  return with_alignment(cuda::embedding_scratch(rows, width));
}

void CudaOps::use_scratch(const Tensor& memory) {
  if (ops::is_given(memory) && memory.device() != device()) {
    fail(ErrorCode::kInvalidArgument, "scratch memory lies on {}, expected {}",
         lockstep::name(memory.device()), lockstep::name(device()));
  }
  Ops::use_scratch(memory);
  void* start = memory.data();
  std::size_t bytes = memory.bytes();
  const bool fits = start != nullptr && std::align(kWorkspaceAlignment, 1, start, bytes);
  context_.workspace = fits ? static_cast<std::byte*>(start) : nullptr;
  context_.workspace_bytes = fits ? bytes : 0;
}

// ---- order

void CudaOps::refuse_while_capturing(const char* what) const {
  if (capture_ == nullptr) return;
  fail(ErrorCode::kInvalidArgument, "{} cannot {} while a step is captured; end_capture() first",
       name_, what);
}

void CudaOps::synchronize() {
  refuse_while_capturing("synchronize");
  use_device(context_.device);
  faults_.fetch();
  check_operations(cudaStreamSynchronize(stream()));
  faults_.check();
}

Event CudaOps::record() {
  refuse_while_capturing("record an event");
  return record_event(context_.device, stream());
}

Moment CudaOps::moment() {
  refuse_while_capturing("take a moment");
  return record_moment(context_.device, stream());
}

void CudaOps::wait(const Event& event) {
  refuse_while_capturing("wait for an event");
  use_device(context_.device);
  if (const std::exception_ptr error = wait_for_event(stream(), event)) {
    std::rethrow_exception(error);
  }
}

void CudaOps::in_order(const std::function<void()>& task) {
  queue([&] {
    const CurrentStream current(stream(), this);
    task();
  });
}

// ---- captured steps

void CudaOps::begin_capture() {
  refuse_while_capturing("capture another");
  use_device(context_.device);
  stream_.set_capturing(true);
  const cudaError_t status = cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal);
  if (status != cudaSuccess) stream_.set_capturing(false);
  cuda::check(status, "capturing operations");
  capture_ = std::make_unique<CurrentStream>(stream(), this);
  capturing_thread_ = std::this_thread::get_id();
  captured_may_fault_ = false;
}

std::unique_ptr<CapturedStep> CudaOps::end_capture() {
  if (capture_ == nullptr || capturing_thread_ != std::this_thread::get_id()) {
    fail(ErrorCode::kInvalidArgument,
         "{} is not capturing a step on this thread; call begin_capture() first", name_);
  }
  capture_.reset();
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream(), &graph);
  stream_.set_capturing(false);
  cuda::check(status, "capturing operations");
  if (captured_may_fault_) faults_.keep_expectations();
  return make_captured_step(*this, graph, captured_may_fault_);
}

void CudaOps::launch(cudaGraphExec_t graph, bool may_fault) {
  refuse_while_capturing("launch a captured step");
  if (may_fault) faults_.expect_again();
  note_operation("the captured operations of a micro-batch");
  queue([&] { cuda::check(cudaGraphLaunch(graph, stream()), "launching a captured step"); });
}

}  // namespace lockstep::cuda

extern "C" lockstep::Ops* lockstep_cuda_ops(int index) {
  return new lockstep::cuda::CudaOps(index);
}
