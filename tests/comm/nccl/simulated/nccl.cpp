// A library with NCCL's interface whose ranks are threads of one process. A group of calls runs on
// a thread of its own, as that of a non-blocking communicator does: its state is "in progress"
// until it ends. Like NCCL it compares nothing. It ends the process where NCCL would hang or read
// past the end of a message, because lockstep must never let it come so far.
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/nccl/library.h"
#include "lockstep/comm/nccl/reduction.h"
#include "tests/comm/nccl/simulated/stuck_rank.h"

namespace {

using Bytes = std::vector<std::byte>;

// The ranks that were made with one id.
struct Ranks {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::pair<int, int>, std::deque<Bytes>> sent;  // by sender and receiver
  bool aborted = false;
};

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "simulated NCCL: %s\n", why);
  std::abort();
}

}  // namespace

namespace lockstep::nccl {

struct ncclComm {
  std::shared_ptr<Ranks> all;
  int rank = 0;
  int size = 0;
  std::thread running = {};
  std::atomic<bool> in_progress{false};

  void join() {
    if (running.joinable()) running.join();
  }
  void await_abort() {
    std::unique_lock lock(all->mutex);
    all->changed.wait(lock, [&] { return all->aborted; });
  }
  void send(int peer, const void* data, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(data);
    const std::lock_guard lock(all->mutex);
    all->sent[{rank, peer}].emplace_back(first, first + bytes);
    all->changed.notify_all();
  }
  void receive(int peer, void* data, std::size_t bytes) {
    std::unique_lock lock(all->mutex);
    std::deque<Bytes>& messages = all->sent[{peer, rank}];
    all->changed.wait(lock, [&] { return !messages.empty() || all->aborted; });
    if (messages.empty()) return;
    if (messages.front().size() != bytes) die("a message has another size than its receiver wants");
    std::memcpy(data, messages.front().data(), bytes);
    messages.pop_front();
  }
  // The data of all ranks, one after the other.
  Bytes gather(const void* data, std::size_t bytes) {
    Bytes gathered(bytes * static_cast<std::size_t>(size));
    for (int peer = 0; peer < size; ++peer) send(peer, data, bytes);
    for (int peer = 0; peer < size; ++peer) {
      receive(peer, gathered.data() + static_cast<std::size_t>(peer) * bytes, bytes);
    }
    return gathered;
  }
};

namespace {

std::mutex ids_mutex;
std::map<std::string, std::shared_ptr<Ranks>> ids;

// The open group of this thread: sends go first, so that no group waits for itself.
thread_local std::vector<std::function<void()>> sends, others;
thread_local Comm user = nullptr;

Result queue(Comm comm, std::vector<std::function<void()>>& list, std::function<void()> call) {
  if (comm->in_progress) die("a call before the last one has ended");
  user = comm;
  list.push_back(std::move(call));
  return Result::kSuccess;
}

DType dtype_of_type(Type type) {
  for (const DType dtype : kAllDTypes) {
    if (type_of(dtype) == type) return dtype;
  }
  die("there is no such type");
}

ReduceOp::Kind kind_of(Op op) {
  constexpr ReduceOp::Kind kKinds[] = {ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax,
                                       ReduceOp::kMin};
  return kKinds[static_cast<int>(op)];
}

}  // namespace

extern "C" {

Result ncclGetVersion(int* version) {
  *version = kLeastVersion;
  return Result::kSuccess;
}
Result ncclGetUniqueId(UniqueId* id) {
  static std::atomic<int> made{0};
  std::snprintf(id->bytes, sizeof(id->bytes), "%d", made++);
  return Result::kSuccess;
}
Result ncclCommInitRankConfig(Comm* comm, int size, UniqueId id, int rank, Config* config) {
  if (config->blocking != 0) die("a communicator that blocks");
  const std::lock_guard lock(ids_mutex);
  std::shared_ptr<Ranks>& ranks = ids[id.bytes];
  if (ranks == nullptr) ranks = std::make_shared<Ranks>();
  *comm = new ncclComm{.all = ranks, .rank = rank, .size = size};
  return Result::kInProgress;
}
Result ncclCommFinalize(Comm) { return Result::kInProgress; }
Result ncclCommDestroy(Comm comm) {
  comm->join();
  delete comm;
  return Result::kSuccess;
}
Result ncclCommAbort(Comm comm) {
  {
    const std::lock_guard lock(comm->all->mutex);
    comm->all->aborted = true;
    comm->all->changed.notify_all();
  }
  return ncclCommDestroy(comm);
}
Result ncclCommGetAsyncError(Comm comm, Result* state) {
  *state = comm->in_progress ? Result::kInProgress : Result::kSuccess;
  return Result::kSuccess;
}
const char* ncclGetErrorString(Result) { return "an error"; }
const char* ncclGetLastError(Comm) { return "nothing more is known"; }

Result ncclGroupStart() {
  sends.clear();
  others.clear();
  user = nullptr;
  return Result::kSuccess;
}
Result ncclGroupEnd() {
  if (user == nullptr) return Result::kSuccess;
  user->join();
  user->in_progress = true;
  user->running = std::thread([comm = user, first = sends, second = others] {
    if (comm->rank == stuck_rank) return comm->await_abort();
    for (const auto& call : first) call();
    for (const auto& call : second) call();
    comm->in_progress = false;
  });
  return Result::kInProgress;
}

Result ncclSend(const void* data, std::size_t bytes, Type, int peer, Comm comm, cudaStream_t) {
  return queue(comm, sends, [=] { comm->send(peer, data, bytes); });
}
Result ncclRecv(void* data, std::size_t bytes, Type, int peer, Comm comm, cudaStream_t) {
  return queue(comm, others, [=] { comm->receive(peer, data, bytes); });
}
Result ncclBroadcast(const void* in, void* out, std::size_t bytes, Type, int root, Comm comm,
                     cudaStream_t) {
  return queue(comm, others, [=] {
    const Bytes all = comm->gather(in, bytes);
    std::memcpy(out, all.data() + static_cast<std::size_t>(root) * bytes, bytes);
  });
}
Result ncclAllGather(const void* in, void* out, std::size_t bytes, Type, Comm comm, cudaStream_t) {
  return queue(comm, others, [=] {
    const Bytes all = comm->gather(in, bytes);
    std::memcpy(out, all.data(), all.size());
  });
}
Result ncclReduce(const void* in, void* out, std::size_t count, Type type, Op op, int root,
                  Comm comm, cudaStream_t stream) {
  const DType dtype = dtype_of_type(type);
  return queue(comm, others, [=] {
    const Bytes all = comm->gather(in, count * size_of(dtype));
    if (comm->rank != root) return;
    launch_tree({all.data(), count, comm->size}, static_cast<std::byte*>(out), count, dtype,
                kind_of(op), stream);
  });
}
Result ncclAllReduce(const void* in, void* out, std::size_t count, Type type, Op op, Comm comm,
                     cudaStream_t stream) {
  return ncclReduce(in, out, count, type, op, comm->rank, comm, stream);
}
Result ncclReduceScatter(const void* in, void* out, std::size_t count, Type type, Op op, Comm comm,
                         cudaStream_t stream) {
  const DType dtype = dtype_of_type(type);
  return queue(comm, others, [=] {
    const auto ranks = static_cast<std::size_t>(comm->size);
    const auto me = static_cast<std::size_t>(comm->rank);
    const Bytes all = comm->gather(in, ranks * count * size_of(dtype));
    launch_tree({all.data() + me * count * size_of(dtype), ranks * count, comm->size},
                static_cast<std::byte*>(out), count, dtype, kind_of(op), stream);
  });
}

}  // extern "C"

}  // namespace lockstep::nccl
