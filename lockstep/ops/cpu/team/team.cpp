#include "lockstep/ops/cpu/team/team.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::cpu {
namespace {

void relax() {
#if defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#elif defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `word` is no longer `old`: kernels follow each other closely, so a moment of spinning
// mostly does.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) {
  constexpr std::chrono::microseconds kSpin{50};
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      const std::uint32_t now = word.load(std::memory_order_acquire);
      if (now != old) return now;
      relax();
    }
  } while (std::chrono::steady_clock::now() < end);
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

struct ThreadTeam::State {
  std::vector<std::exception_ptr> errors;  // one per thread
  Body body = nullptr;                     // null: the threads end
  const void* argument = nullptr;
  alignas(64) std::atomic<std::uint32_t> round = 0;    // a change begins the work
  alignas(64) std::atomic<std::uint32_t> working = 0;  // threads that have not finished it
  std::vector<std::jthread> threads;

  void work(int thread) {
    try {
      body(argument, thread);
    } catch (...) {
      errors[static_cast<std::size_t>(thread)] = std::current_exception();
    }
  }

  void serve(int thread) {
    std::uint32_t seen = 0;
    while (true) {
      seen = wait_for_change(round, seen);
      if (body == nullptr) return;
      work(thread);
      if (working.fetch_sub(1, std::memory_order_acq_rel) == 1) working.notify_one();
    }
  }

  void begin() {
    round.fetch_add(1, std::memory_order_release);
    round.notify_all();
  }
};

ThreadTeam::ThreadTeam(int threads) : size_(threads), state_(std::make_unique<State>()) {
  if (threads < 1) {
    fail(ErrorCode::kInvalidArgument, "a thread team needs at least 1 thread; got {}", threads);
  }
  state_->errors.resize(static_cast<std::size_t>(threads));
  for (int thread = 1; thread < threads; ++thread) {
    state_->threads.emplace_back([state = state_.get(), thread] { state->serve(thread); });
  }
}

ThreadTeam::~ThreadTeam() {
  state_->body = nullptr;
  state_->begin();
}

void ThreadTeam::call(Body body, const void* argument) {
  State& state = *state_;
  state.body = body;
  state.argument = argument;
  if (size_ > 1) {
    state.working.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
    state.begin();
  }
  state.work(0);
  while (size_ > 1) {
    const std::uint32_t left = state.working.load(std::memory_order_acquire);
    if (left == 0) break;
    wait_for_change(state.working, left);
  }
  for (std::exception_ptr& error : state.errors) {
    if (error) {
      const std::exception_ptr first = error;
      for (std::exception_ptr& each : state.errors) each = nullptr;
      std::rethrow_exception(first);
    }
  }
}

}  // namespace lockstep::cpu
