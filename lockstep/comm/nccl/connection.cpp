#include "lockstep/comm/nccl/connection.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/comm/nccl/owners.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/devices.h"

namespace lockstep::nccl {
namespace {

using cuda::check;
using std::chrono::steady_clock;

// Between two looks of the thread that watches, and of a poll after its first ones.
constexpr std::chrono::milliseconds kLook(20);
constexpr std::chrono::microseconds kPoll(50);
constexpr int kEagerPolls = 2000;
// How long the host may need to learn why NCCL has lost a rank.
constexpr std::chrono::seconds kNews(2);

}  // namespace

// ---- making it

Connection::Connection(Communicator& host, const DeviceCommunicatorOptions& options)
    : host_(host), options_(options), library_(agreed_library(host, options.device.index)) {
  cuda::use_device(options_.device.index);
  try {
    connect();
  } catch (const Error&) {
    abort_nccl();
    throw;
  }
  watch_ = std::thread([this] { watch(); });
}

void Connection::connect() {
  const std::string what = fmt::format("connecting {} ranks by NCCL", host_.size());
  // Its error is sent in place of the id: otherwise the others would wait for it.
  struct {
    UniqueId id{};
    Result result = Result::kSuccess;
  } made;
  if (host_.rank() == 0) made.result = library_.get_unique_id(&made.id);
  host_.broadcast(Data(&made, sizeof(made), DType::kU8), 0);
  if (made.result != Result::kSuccess) throw error_of(made.result, what + " (rank 0)");
  Config config;
  config.blocking = 0;
  const Result result = library_.init_rank(&comm_, host_.size(), made.id, host_.rank(), &config);
  if (result != Result::kSuccess && result != Result::kInProgress) fail_by(result, what);
  settle([&] { return what; });
}

Connection::~Connection() {
  cuda::use_device(options_.device.index);
  drain();
  try {
    host_.barrier();  // all ranks have come here, or one is lost
  } catch (const Error&) {
  }
  ends_ = true;
  watch_.join();
  finalize();
  try {
    host_.barrier();
  } catch (const Error&) {
  }
  if (open_) watched_.push_back(*open_);
  for (const Watched& one : watched_) {
    cudaEventDestroy(one.begin);
    cudaEventDestroy(one.end);
  }
  for (const cudaEvent_t event : unused_events_) cudaEventDestroy(event);
  cudaGetLastError();
}

// Until the GPU has run all calls; the watch ends those that cannot end.
void Connection::drain() {
  std::vector<cudaEvent_t> ends;
  {
    const std::lock_guard lock(watched_mutex_);
    for (const Watched& one : watched_) ends.push_back(one.end);
  }
  for (const cudaEvent_t end : ends) cudaEventSynchronize(end);
}

void Connection::finalize() {
  try {
    throw_failure();
    {
      const std::lock_guard lock(nccl_mutex_);
      const Result result = library_.finalize(comm_);
      if (result != Result::kSuccess && result != Result::kInProgress) {
        throw error_of(result, "closing NCCL");
      }
    }
    settle([] { return "closing NCCL"; });
    const std::lock_guard lock(nccl_mutex_);
    library_.destroy(std::exchange(comm_, nullptr));
  } catch (const Error&) {
    abort_nccl();
  }
}

// ---- failures

std::optional<Error> Connection::failure() const {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return failure_;
  }
  return host_.failure();
}

void Connection::throw_failure() const {
  if (const std::optional<Error> error = failure()) throw *error;
}

void Connection::fail_with(const Error& error) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = error;
  }
  abort_nccl();
}

// NCCL uses the data of a call until it has been aborted.
void Connection::end_and_throw() {
  fail_with(*failure());
  abort_nccl();  // waits where another thread does so
  throw Error(*failure());
}

void Connection::fail_all_with(const Error& error) {
  {
    const std::lock_guard lock(failure_mutex_);
    if (failure_) return;
    failure_ = error;
  }
  if (!host_.failure()) host_.abort(error.what());
  abort_nccl();
}

void Connection::abort_nccl() {
  const std::lock_guard lock(nccl_mutex_);
  if (comm_ == nullptr) return;
  cuda::use_device(options_.device.index);
  library_.abort(std::exchange(comm_, nullptr));
}

// A rank that dies closes its connections: the host knows who it was.
Error Connection::error_of(Result result, const std::string& what) const {
  if (host_.wait_for_failure(kNews)) {
    if (const std::optional<Error> lost = host_.failure()) return *lost;
  }
  return Error(ErrorCode::kSystem,
               fmt::format("{}: NCCL failed: {} ({}); NCCL_DEBUG=WARN in the environment prints "
                           "more",
                           what, library_.error_string(result), library_.last_error(nullptr)));
}

void Connection::fail_by(Result result, const std::string& what) {
  fail_all_with(error_of(result, what));
  end_and_throw();
}

std::vector<int> Connection::others() const {
  std::vector<int> ranks;
  for (int r = 0; r < host_.size(); ++r) {
    if (r != host_.rank()) ranks.push_back(r);
  }
  return ranks;
}

// ---- calls

void Connection::settle(const Text& what) {
  const auto deadline = steady_clock::now() + options_.timeout;
  for (int polls = 0;; ++polls) {
    if (failure()) end_and_throw();
    Result state = Result::kSuccess;
    {
      const std::lock_guard lock(nccl_mutex_);
      if (comm_ == nullptr) continue;  // the failure that ended it is known
      if (const Result asked = library_.async_error(comm_, &state); asked != Result::kSuccess) {
        state = asked;
      }
    }
    if (state == Result::kSuccess) return;
    if (state != Result::kInProgress) fail_by(state, what());
    if (polls < kEagerPolls) {
      std::this_thread::yield();
      continue;
    }
    if (steady_clock::now() > deadline) {
      fail_all_with(overdue(what(), options_.timeout, others()));
      end_and_throw();
    }
    std::this_thread::sleep_for(kPoll);
  }
}

void Connection::queue(const Group& group) {
  Result result = Result::kSuccess;
  {
    const std::lock_guard lock(nccl_mutex_);
    if (comm_ != nullptr) {
      library_.group_start();
      result = group(library_, comm_);
      const Result ended = library_.group_end();
      if (result == Result::kSuccess || result == Result::kInProgress) result = ended;
    }
  }
  const auto what = [&] { return describe(open_->call); };
  if (result != Result::kSuccess && result != Result::kInProgress) fail_by(result, what());
  settle(what);
}

cudaEvent_t Connection::take_event() {
  {
    const std::lock_guard lock(watched_mutex_);
    if (!unused_events_.empty()) {
      const cudaEvent_t event = unused_events_.back();
      unused_events_.pop_back();
      return event;
    }
  }
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event");
  return event;
}

void Connection::begin(const Fingerprint& call, cudaStream_t stream) {
  // One that threw before its end leaves its events.
  if (!open_) open_ = Watched{.begin = take_event(), .end = take_event()};
  open_->call = call;
  check(cudaEventRecord(open_->begin, stream), "queueing a collective");
}

void Connection::end(cudaStream_t stream) {
  check(cudaEventRecord(open_->end, stream), "queueing a collective");
  const std::lock_guard lock(watched_mutex_);
  watched_.push_back(*std::exchange(open_, std::nullopt));
}

// ---- the watch

void Connection::watch() {
  cuda::use_device(options_.device.index);
  while (!ends_) {
    if (host_.wait_for_failure(kLook)) {
      if (const std::optional<Error> error = host_.failure()) return fail_with(*error);
    }
    {
      const std::lock_guard lock(failure_mutex_);
      if (failure_) return;
    }
    Result state = Result::kSuccess;
    {
      const std::lock_guard lock(nccl_mutex_);
      if (comm_ == nullptr) return;
      if (library_.async_error(comm_, &state) != Result::kSuccess) state = Result::kInProgress;
    }
    if (state != Result::kSuccess && state != Result::kInProgress) {
      return fail_all_with(error_of(state, "a collective between GPUs"));
    }
    look_at_calls();
  }
}

void Connection::look_at_calls() {
  std::optional<Error> late;
  {
    const std::lock_guard lock(watched_mutex_);
    while (!watched_.empty() && cudaEventQuery(watched_.front().end) == cudaSuccess) {
      unused_events_.push_back(watched_.front().begin);
      unused_events_.push_back(watched_.front().end);
      watched_.pop_front();
    }
    if (!watched_.empty()) {
      Watched& first = watched_.front();
      if (!first.began && cudaEventQuery(first.begin) == cudaSuccess) {
        first.began = steady_clock::now();
      }
      if (first.began && steady_clock::now() - *first.began > options_.timeout) {
        late = overdue(describe(first.call), options_.timeout, others());
      }
    }
  }
  if (late) fail_all_with(*late);
}

}  // namespace lockstep::nccl
