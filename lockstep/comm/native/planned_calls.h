// What ranks will send each other, before there are any: the schedule of a call is data, and so is
// what decides between schedules.
//
// For ranks on one machine, or on machines that comm.emulated_nodes makes up, everything is known
// beforehand: the links are those of comm.emulate, or assumed. Between real machines, and with
// comm.transport = "tcp", they are measured when ranks meet, and another algorithm may be chosen
// than here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "lockstep/comm/call.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/comm/options.h"

namespace lockstep {

// Payload of all ranks together, by the link that it takes.
struct LinkBytes {
  std::uint64_t inside = 0;  // from rank to rank of one machine
  std::uint64_t across = 0;  // from machine to machine

  LinkBytes& operator+=(const LinkBytes& more) {
    inside += more.inside;
    across += more.across;
    return *this;
  }
  friend LinkBytes operator+(LinkBytes one, const LinkBytes& other) { return one += other; }
  std::uint64_t total() const { return inside + across; }
  friend LinkBytes operator*(std::uint64_t times, LinkBytes one) {
    return {times * one.inside, times * one.across};
  }
  friend bool operator==(const LinkBytes&, const LinkBytes&) = default;
};

class PlannedCalls {
 public:
  // Of a communicator of all ranks on `machines` that are dealt out as comm.emulated_nodes does
  // it.
  PlannedCalls(int ranks, int machines, const CommOptions& options);

  // `call` is that of any rank that gives something; its memory is not looked at. Not for what only
  // pairs of ranks know: sends, receives and all_to_all_v.
  LinkBytes sent(const Call& call);

 private:
  LinkBytes count(const Call& call, const std::string& algorithm) const;

  Selector selector_;
  // By kind, algorithm, root, elements of a rank and their size.
  std::map<std::tuple<Collective, std::string, int, std::size_t, std::size_t>, LinkBytes> counted_;
};

}  // namespace lockstep
