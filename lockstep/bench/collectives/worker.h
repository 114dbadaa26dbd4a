// The worker loop, the same for every implementation under test.
//
// A worker is one rank of a job. It blocks in read() on its connection to the bench until a task
// comes, so that idle jobs cost nothing. For each call of a task it fills the input, passes the
// implementation's own barrier, times one call, and checks the whole output; only the call is
// timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "lockstep/bench/collectives/pattern.h"
#include "lockstep/bench/collectives/task.h"

namespace lockstep::bench {

struct Buffers {
  std::byte* in = nullptr;
  std::byte* out = nullptr;  // == in for ops that work in place
};

// One implementation, seen from one rank.
class Subject {
 public:
  virtual ~Subject() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Why the implementation cannot do this task, the same on all ranks; empty: it can.
  virtual std::string unsupported(const Task&) { return {}; }
  // Gets ready for calls of `task`: memory, and whatever may be set up once. The buffers stay
  // valid until the next prepare().
  virtual Buffers prepare(const Task& task) = 0;
  virtual void barrier() = 0;
  // The timed call, on the buffers of the last prepare().
  virtual void run() = 0;
  // What run() uses and why.
  virtual std::string algorithm() { return "default"; }
  virtual std::string why() { return {}; }
};

// Page-aligned memory of this process alone, grown by reserve().
class PrivateMemory {
 public:
  PrivateMemory() = default;
  ~PrivateMemory();
  PrivateMemory(const PrivateMemory&) = delete;
  PrivateMemory& operator=(const PrivateMemory&) = delete;

  std::byte* reserve(std::size_t bytes);

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// The buffers most subjects use: `out` only where the op is not in place.
class PrivateBuffers {
 public:
  Buffers prepare(const Task& task, int ranks);

 private:
  PrivateMemory in_;
  PrivateMemory out_;
};

// Carries out tasks on a subject. Tasks that are the same work share one prepare().
class Worker {
 public:
  explicit Worker(Subject& subject) : subject_(subject) {}

  // Errors of the subject become Reply::error.
  Reply perform(const Task& task);

 private:
  void prepare(const Task& task);
  double timed_call(Reply& reply);

  Subject& subject_;
  std::optional<Task> prepared_;
  std::optional<Expectation> expectation_;
  Buffers buffers_;
  std::uint64_t calls_ = 0;
};

// Serves the bench that started this process until it closes the connection; the exit code.
int serve(Subject& subject);

// How a worker finds its bench, set by the bench for every process of a job.
inline constexpr const char* kSocketVariable = "LOCKSTEP_BENCH_SOCKET";
inline constexpr const char* kJobVariable = "LOCKSTEP_BENCH_JOB";
inline constexpr const char* kDirectoryVariable = "LOCKSTEP_BENCH_DIRECTORY";

}  // namespace lockstep::bench
