// Sleeping on a word of memory that several processes may share.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep {

// Sleeps while `word` holds `expected`, until woken or `timeout` has passed. May wake early.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds timeout);
void futex_wake_all(std::atomic<std::uint32_t>& word);

}  // namespace lockstep
