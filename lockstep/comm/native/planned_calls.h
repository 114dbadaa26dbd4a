// Predicts what ranks will send each other, without starting any: the schedule of a call, and the
// selection between schedules, can be computed in advance.
//
// On one node and on emulated nodes the prediction is exact: the links are those of comm.emulate,
// or assumed. Links between real nodes, and with comm.transport = "tcp", are measured at start, and
// a run may choose another algorithm than predicted here.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "lockstep/comm/call.h"
#include "lockstep/comm/native/selection.h"
#include "lockstep/comm/options.h"

namespace lockstep {

// Payload of all ranks together, by link.
struct LinkBytes {
  std::uint64_t inside = 0;  // between ranks of one node
  std::uint64_t across = 0;  // between nodes

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
  // For a communicator of all ranks on `machines` nodes, split as by comm.emulated_nodes.
  PlannedCalls(int ranks, int machines, const CommOptions& options);

  // `call` is the call of any rank with an input; its memory is not read. Not for sends, receives
  // and all_to_all_v, whose sizes only pairs of ranks know.
  LinkBytes sent(const Call& call);

 private:
  LinkBytes count(const Call& call, const std::string& algorithm) const;

  Selector selector_;
  // By kind, algorithm, root, elements of a rank and their size.
  std::map<std::tuple<Collective, std::string, int, std::size_t, std::size_t>, LinkBytes> counted_;
};

}  // namespace lockstep
