// The connection between a rank that lockstep trains in and its supervisor: through it a rank can
// outlive the loss of others.
//
//   rank          step 41        its last step, as it proceeds
//                 lost TEXT      it has lost other ranks, has unwound and waits
//                 hung 1,3 TEXT  the same, because ranks 1 and 3 did not answer in time
//                 final          it ends with an error that would come again
//   supervisor    leave          stop communicating: others are lost, though their connections live
//                 join 2         meet the others in generation 2
//                 end            there is no next generation
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
  enum class Kind : std::uint8_t { kStep, kLost, kFinal };
  Kind kind = Kind::kStep;
  std::int64_t step = 0;
  std::string text;       // why it has lost others
  std::vector<int> hung;  // that did not answer in time
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
  void send_join(int generation) const;
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

  // Waits for the request to leave, or until `cancel` is readable; whether it has come. Not while
  // another thread is in await_generation().
  bool await_leave(int cancel) const;
  // Neither waits; a report that does not fit is dropped.
  void report_step(std::int64_t step) const;
  void report_final() const;
  // Reports the loss of others, of which `hung` did not answer in time; waits; and returns the
  // generation to join. Nothing: there is none, and the job ends. Throws Error(kPeerLost) if the
  // supervisor has gone.
  std::optional<int> await_generation(const std::string& why, std::span<const int> hung) const;

 private:
  explicit SupervisorLink(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

}  // namespace lockstep
