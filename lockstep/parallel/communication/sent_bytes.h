// Bytes that workers send.
#pragma once

#include <cstdint>

#include "lockstep/comm/native/planned_calls.h"

namespace lockstep::parallel {

struct SentBytes {
  std::uint64_t all = 0;  // by one worker, were each to take the shortest way
  // By all workers together, as they go out. On one machine nothing goes out: they read each
  // other's memory.
  LinkBytes links;

  SentBytes& operator+=(const SentBytes& more) {
    all += more.all;
    links += more.links;
    return *this;
  }
  friend SentBytes operator+(SentBytes one, const SentBytes& other) { return one += other; }
  friend SentBytes operator*(std::uint64_t times, const SentBytes& one) {
    return {times * one.all, times * one.links};
  }
};

// What a worker sends in a step (parallel/traffic.h counts it ahead).
struct Traffic {
  SentBytes gradients;
  SentBytes parameters;
  SentBytes rows;  // of a table of tokens (parallel/ddp/table_rows.h)

  SentBytes total() const { return gradients + parameters + rows; }
};

}  // namespace lockstep::parallel
