// Control messages between ranks, besides their operations: failures and roll calls.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <deque>
#include <optional>

#include "lockstep/base/error.h"

namespace lockstep::mpi {

inline constexpr int kHeaderTag = 0;
inline constexpr int kSignalTag = 2;
inline constexpr int kControlTag = 3;

struct ControlMessage {
  enum class Kind : std::int32_t {
    kFailed,    // the group is unusable; code, ranks and text have the reason
    kRollCall,  // answered with kPresent:
    kPresent,   // collectives started so far
  };
  static constexpr int kMostRanks = 64;
  Kind kind = Kind::kFailed;
  std::int32_t sender = 0;
  std::uint64_t started = 0;
  std::int32_t code = 0;
  std::int32_t rank_count = 0;
  std::int32_t ranks[kMostRanks] = {};
  char text[1000] = {};
};

ControlMessage failure_message(const Error& error);
Error error_of(const ControlMessage& message);

// The channel of one rank. Not thread-safe.
class ControlChannel {
 public:
  ControlChannel(MPI_Comm comm, int rank, int size);

  void send(int to, ControlMessage message);
  void send_to_all(const ControlMessage& message);
  std::optional<ControlMessage> receive();  // if one has come
  void signal(int to);                      // an empty message with a separate tag
  // Ends the channel: nothing more will be received.
  void close();

 private:
  struct Outgoing {
    ControlMessage message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void listen();
  void drop_sent();

  MPI_Comm comm_;
  int rank_;
  int size_;
  ControlMessage incoming_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  std::deque<Outgoing> outgoing_;
};

}  // namespace lockstep::mpi
