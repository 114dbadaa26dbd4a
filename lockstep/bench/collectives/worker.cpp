#include "lockstep/bench/collectives/worker.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>

#include <chrono>
#include <cstdlib>
#include <exception>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/bench/connection.h"

namespace lockstep::bench {
namespace {

constexpr std::size_t kPage = 4096;

using Clock = std::chrono::steady_clock;

std::string variable(const char* key) {
  const char* value = std::getenv(key);
  if (value == nullptr) {
    fail(ErrorCode::kInvalidArgument,
         "{} is not set: a bench worker is started by `lockstep bench`, not by hand", key);
  }
  return value;
}

}  // namespace

PrivateMemory::~PrivateMemory() { std::free(data_); }

std::byte* PrivateMemory::reserve(std::size_t bytes) {
  if (bytes_ != bytes) {
    std::free(data_);
    bytes_ = 0;
    data_ = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (data_ == nullptr) fail(ErrorCode::kSystem, "no memory for a buffer of {} bytes", bytes);
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(data_);
}

Buffers PrivateBuffers::prepare(const Task& task, int ranks) {
  const Extent size = extent(task, ranks);
  std::byte* in = in_.reserve(size.in * size_of(task.dtype));
  return {in, in_place(task.op) ? in : out_.reserve(size.out * size_of(task.dtype))};
}

void Worker::prepare(const Task& task) {
  if (prepared_ && same_work(*prepared_, task)) return;
  prepared_.reset();
  expectation_.emplace(task, subject_.rank(), subject_.size());
  buffers_ = subject_.prepare(task);
  prepared_ = task;
}

double Worker::timed_call(Reply& reply) {
  ++calls_;
  expectation_->write_input(buffers_.in, calls_);
  subject_.barrier();
  const auto start = Clock::now();
  subject_.run();
  const double seconds = seconds_since(start);
  // Where ranks share CPUs, the check of one rank must not take time from the call of another.
  subject_.barrier();
  if (reply.wrong.empty()) {
    reply.wrong = expectation_->check_output(buffers_.out, calls_);
    if (!reply.wrong.empty())
      reply.wrong = fmt::format("rank {}: {}", subject_.rank(), reply.wrong);
  }
  return seconds;
}

Reply Worker::perform(const Task& task) {
  Reply reply;
  try {
    reply.unsupported = subject_.unsupported(task);
    if (!reply.unsupported.empty()) return reply;
    prepare(task);
    reply.algorithm = subject_.algorithm();
    reply.why = subject_.why();
    for (int i = 0; i < task.warmup; ++i) timed_call(reply);
    reply.seconds.reserve(static_cast<std::size_t>(task.iterations));
    const auto start = Clock::now();
    for (int i = 0; i < task.iterations; ++i) reply.seconds.push_back(timed_call(reply));
    reply.wall_seconds = seconds_since(start);
  } catch (const std::exception& error) {
    reply.error = error.what();
  }
  return reply;
}

int serve(Subject& subject) {
  // The process that started this one may be an MPI launcher; when it goes, so do we.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Connection bench = connect_to(variable(kSocketVariable));
  bench.send_line(fmt::format("{} {}", variable(kJobVariable), subject.rank()));
  Worker worker(subject);
  while (const auto line = bench.receive_line()) {
    const Reply reply = worker.perform(task_from_line(*line));
    bench.send_line(to_line(reply));
    if (!reply.error.empty()) {
      fmt::print(stderr, "rank {}: {}\n", subject.rank(), reply.error);
      return EXIT_FAILURE;
    }
  }
  return EXIT_SUCCESS;
}

}  // namespace lockstep::bench
