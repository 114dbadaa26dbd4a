// The connection between a rank that lockstep trains in and its supervisor: through it a rank can
// outlive the loss of others.
//
//   rank          step 41        its last step, as it proceeds
//                 lost TEXT      it has lost other ranks, has unwound and waits
//                 hung 1,3 TEXT  the same, because ranks 1 and 3 did not answer in time
//                 slow 3 TEXT    rank 3 delays all others, and may be replaced
//                 ready          it waits for a generation without a loss: a spare that has begun,
//                                or a rank after a step, with all others, because of `regroup`
//                 stays 2        all ranks continue in this generation, though they were to regroup
//                 final          it ends with an error that would come again
//   supervisor    leave          stop communicating: others are lost, though their connections live
//                 regroup 1 2    stop after a step of generation 1, all ranks after the same one:
//                                the next generation has another number of ranks. This is the
//                                second such request in generation 1
//                 join 2 0 3 0 3 meet the others in generation 2, as rank 0 of 3, and 0 of 3 here
//                 end            there is no next generation for this process
//
// Every line is one packet.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/file/fd.h"

namespace lockstep {

struct RankReport {
  enum class Kind : std::uint8_t { kStep, kLost, kSlow, kReady, kStays, kFinal };
  Kind kind = Kind::kStep;
  std::int64_t step = 0;
  std::string text;        // why it has lost others; how slow
  std::vector<int> ranks;  // that did not answer in time; that is slow
  int request = 0;         // that the ranks do not follow (stays)
};

// Which generation a rank is to join, and its place there.
struct RankPlace {
  int generation = 0;
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
};

// The supervisor's end.
class RankLink {
 public:
  RankLink();

  int fd() const { return mine_.get(); }
  // The descriptor for the rank, until it was started.
  int rank_end() const { return theirs_.get(); }
  void close_rank_end() { theirs_.reset(); }

  // What has come, if anything; malformed packets are dropped.
  std::optional<RankReport> take();
  void send_leave() const;
  void send_regroup(int generation, int request) const;
  void send_join(const RankPlace& place) const;
  void send_end() const;

 private:
  UniqueFd mine_;
  UniqueFd theirs_;
};

// The rank's end.
class SupervisorLink {
 public:
  // By kSupervisorVariable, which it removes from the environment: the rank's own children are not
  // supervised. Nothing where it is not set.
  static std::optional<SupervisorLink> find();

  // What the supervisor asks for while the rank trains.
  struct Request {
    int regroup = 0;  // the number of the request to regroup; 0: the rank is to leave
  };
  // Waits for a request in that generation, or until `cancel` is readable: nothing. Not while
  // another thread is in await_generation().
  std::optional<Request> await_request(int generation, int cancel) const;
  // Neither waits; a report that does not fit is dropped.
  void report_step(std::int64_t step) const;
  void report_slow(int rank, const std::string& how) const;
  void report_stays(int request) const;
  void report_final() const;
  // Reports that this process waits, and for `why` it does: the loss of others, of which `hung` did
  // not answer in time; nothing: it has lost none. Waits, and returns the generation to join.
  // Nothing: there is none, and the process ends. Throws Error(kPeerLost) if the supervisor has
  // gone.
  std::optional<RankPlace> await_generation(const std::optional<std::string>& why,
                                            std::span<const int> hung) const;

 private:
  explicit SupervisorLink(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace lockstep
