// Counts of bytes that workers send.
#pragma once

#include <cstdint>

#include "lockstep/comm/native/planned_calls.h"

namespace lockstep::parallel {

struct SentBytes {
  std::uint64_t all = 0;  // by one worker, the mean
  LinkBytes links;        // by all workers together

  // Of calls that all workers make.
  static SentBytes of(const LinkBytes& links, int workers) {
    return {.all = links.total() / static_cast<std::uint64_t>(workers), .links = links};
  }

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

// The calls of all workers, and those of the workers that hold the same experts
// (nn/expert_group.h): of one group of these, while `experts` groups make them at once.
struct PlannedGroups {
  PlannedCalls& of_all;
  PlannedCalls& of_expert_data;
  int workers = 1;
  int experts = 1;

  // Of a call about parameters of a block, with or without experts.
  SentBytes sent(const Call& call, bool has_experts) const {
    if (!has_experts) return SentBytes::of(of_all.sent(call), workers);
    SentBytes sent = SentBytes::of(of_expert_data.sent(call), workers / experts);
    sent.links = static_cast<std::uint64_t>(experts) * sent.links;
    return sent;
  }
};

// The bytes that `source`, a Communicator or an object with several, sends while `body` runs.
template <class Source, class Body>
std::uint64_t sent_during(const Source& source, Body&& body) {
  const std::uint64_t before = source.bytes_sent();
  body();
  return source.bytes_sent() - before;
}

// What a worker sends in a step (parallel/traffic.h predicts it).
struct Traffic {
  SentBytes gradients;
  SentBytes parameters;
  SentBytes rows;  // of a token embedding (parallel/ddp/table_rows.h)

  SentBytes total() const { return gradients + parameters + rows; }
};

}  // namespace lockstep::parallel
