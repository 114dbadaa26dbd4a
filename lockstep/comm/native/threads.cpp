#include "lockstep/comm/native/threads.h"

#include <exception>
#include <mutex>
#include <numeric>
#include <thread>

#include "lockstep/comm/native/group_communicator.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/comm/native/thread_fabric.h"

namespace lockstep {

std::vector<std::unique_ptr<Communicator>> make_thread_world(int ranks,
                                                             const CommOptions& options) {
  if (ranks < 1)
    fail(ErrorCode::kInvalidArgument, "a world needs at least one rank, not {}", ranks);
  if (options.transport == TransportChoice::kTcp) {
    fail(ErrorCode::kUnsupported,
         "ranks that are threads share memory; comm.transport = \"tcp\" needs the native backend");
  }
  check_algorithms(options);
  check_grid(options, ranks);
  check_emulation(options);
  constexpr std::uint64_t kWorldTag = 1;
  std::vector<int> members(static_cast<std::size_t>(ranks));
  std::iota(members.begin(), members.end(), 0);
  const auto exchange = [&](const std::string&) {
    return std::vector<std::string>(members.size());  // threads reach every member
  };
  std::vector<std::unique_ptr<Communicator>> world;
  for (const auto& fabric : make_thread_fabrics(ranks, options.timeout)) {
    world.push_back(
        std::make_unique<GroupCommunicator>(fabric, kWorldTag, members, options, exchange));
  }
  return world;
}

void run_threads(int ranks, const std::function<void(Communicator&)>& body,
                 const CommOptions& options) {
  auto world = make_thread_world(ranks, options);
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (auto& communicator : world) {
    threads.emplace_back([&] {
      try {
        body(*communicator);
      } catch (...) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        communicator->abort("an exception ended the thread of this rank");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace lockstep
