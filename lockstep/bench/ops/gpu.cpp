#include "lockstep/bench/ops/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/bench/ops/fields.h"
#include "lockstep/bench/ops/timed_case.h"
#include "lockstep/bench/statistics.h"
#include "lockstep/bench/train/python.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kFewestBatches = 5;
constexpr std::size_t kMostBatches = 200;
constexpr std::size_t kMoreThanCaches = std::size_t{256} << 20;  // five times an H200's L2
constexpr std::size_t kCopyBytes = std::size_t{2} << 30;
constexpr std::int64_t kProductSize = 8192;

void print_at_once(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

double median_seconds(Ops& ops, const OpCase& one) {
  TimedCase timed(ops, one, kMoreThanCaches, GpuTiming{}.batch_seconds);
  std::vector<double> samples(kFewestBatches);
  for (double& sample : samples) sample = timed.seconds();
  std::sort(samples.begin(), samples.end());
  return quantile(samples, 0.5);
}

Floor measure_ceiling(Ops& ops, const std::vector<DType>& dtypes) {
  Floor ceiling;
  const OpCase copied = copy_case(kCopyBytes);
  ceiling.streaming.copy = copied.bytes() / median_seconds(ops, copied);
  ceiling.streaming.array_bytes = kCopyBytes;
  for (const DType dtype : dtypes) {
    const OpCase product = product_case(dtype, kProductSize);
    ceiling.peaks[dtype] = {.threads = 0,
                            .instruction = product.name,
                            .flops = product.flops / median_seconds(ops, product)};
  }
  return ceiling;
}

std::unique_ptr<AttentionPeer> start_peer(const GpuOpsPlan& plan, const Interrupt& interrupt) {
  if (!plan.peers) return nullptr;
  const Python python = find_python(plan.python, plan.command);
  std::string problem = python.problem;
  if (problem.empty()) {
    auto peer = std::make_unique<AttentionPeer>(python.program,
                                                plan.peers_folder / "ops_pytorch.py", interrupt);
    if (peer->failure().empty()) return peer;
    problem = peer->failure();
  }
  print_at_once(fmt::format("left out: cuDNN through PyTorch: {}\n", problem));
  return nullptr;
}

}  // namespace

OpCase copy_case(std::size_t bytes) {
  OpCase one;
  one.name = fmt::format("{} bytes", bytes);
  const Shape shape{static_cast<std::int64_t>(bytes / size_of(DType::kF32))};
  one.fields = {input("from", DType::kF32, shape, normal()), output("to", DType::kF32, shape, {})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Cast{.from = t["from"], .to = t["to"]});
  };
  return one;
}

OpCase product_case(DType dtype, std::int64_t size) {
  OpCase one;
  one.name = fmt::format("a product of {0} x {0} x {0}", size);
  const Shape square{size, size};
  one.fields = {input("x", dtype, square, normal()),
                input("weight", dtype, square, normal(balanced(size))),
                output("y", dtype, square, {})};
  one.run = [](Ops& ops, const Tensors& t) {
    ops.run(ops::Linear{.x = t["x"], .weight = t["weight"], .y = t["y"]});
  };
  one.scratch = [size, dtype](const Ops& ops) {
    return ops.scratch(
        LinearShape{.rows = size, .in = size, .out = size, .dtype = dtype, .gradient = dtype});
  };
  const auto extent = static_cast<double>(size);
  one.flops = 2 * extent * extent * extent;
  return one;
}

OpTime time_large(Ops& ops, const OpDescription& description, const OpCase& one, DType dtype,
                  const GpuTiming& timing) {
  OpTime time{.op = description.name,
              .dtype = dtype,
              .case_name = one.name,
              .flops = one.flops,
              .bytes = one.bytes(),
              .bar_percent = 100 * description.large.bar};
  const bool backward = description.operation() == "attention_backward";
  bool ask = timing.peer != nullptr && one.attention.has_value();
  try {
    TimedCase timed(ops, one, timing.more_than_caches, timing.batch_seconds);
    if (ask) {
      time.peer_problem = timing.peer->time(*one.attention, backward, timed.calls()).problem;
      ask = time.peer_problem.empty();
    }
    double spent = 0;
    while (time.samples.size() < kFewestBatches ||
           (spent < timing.seconds && time.samples.size() < kMostBatches)) {
      if (timing.interrupt != nullptr) timing.interrupt->check();
      time.samples.push_back(timed.seconds());
      spent += time.samples.back() * static_cast<double>(timed.calls());
      if (ask) {
        const PeerTime theirs = timing.peer->time(*one.attention, backward, timed.calls());
        time.peer_problem = theirs.problem;
        time.peer_note = theirs.note;
        ask = theirs.problem.empty();
        if (ask) time.peer_samples.push_back(theirs.seconds);
      }
    }
    std::sort(time.samples.begin(), time.samples.end());
    std::sort(time.peer_samples.begin(), time.peer_samples.end());
    if (!time.peer_problem.empty()) time.peer_samples.clear();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kAborted) throw;
    time.samples.clear();
    time.peer_samples.clear();
    time.problem = error.what();
  }
  return time;
}

bool run_ops_on_gpu(const GpuOpsPlan& plan) {
  if (!plan.json.empty()) check_can_write(plan.json);
  const Interrupt interrupt;
  const auto ops = make_ops(plan.device, 1);
  const auto peer = start_peer(plan, interrupt);
  const Floor ceiling = measure_ceiling(*ops, plan.dtypes);
  print_at_once(gpu_heading(ops->name(), peer == nullptr ? "" : peer->version(), ceiling));
  const GpuTiming timing{.seconds = plan.seconds,
                         .more_than_caches = kMoreThanCaches,
                         .peer = peer.get(),
                         .interrupt = &interrupt};
  std::vector<OpTime> times;
  for (const OpDescription& description : plan.ops) {
    for (const DType dtype : plan.dtypes) {
      for (const OpCase& one : description.large.cases(dtype)) {
        times.push_back(time_large(*ops, description, one, dtype, timing));
        print_at_once(gpu_line(times.back(), ceiling));
      }
    }
  }
  print_at_once(gpu_bars(times, ceiling));
  if (!plan.json.empty()) {
    write_file(plan.json, ops_json(times, ops->name(), ceiling));
    print_at_once(fmt::format("wrote {} results to {}\n", times.size(), plan.json.string()));
  }
  return std::all_of(times.begin(), times.end(),
                     [](const OpTime& time) { return time.problem.empty(); });
}

}  // namespace lockstep::bench
