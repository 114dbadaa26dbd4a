// A server's connections that have not proved the token yet (strangers), in one poll() without
// blocking. With too many strangers, or without free descriptors, the oldest is dropped. A valid
// client may be among them, so clients retry (connect_and_prove()).
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/comm/rendezvous/handshake.h"

namespace lockstep {

struct StrangerLimits {
  std::size_t most = 256;                   // at a time
  std::chrono::milliseconds timeout{5000};  // for a proof
};

// Used by one thread.
class Strangers {
 public:
  // A stranger that has proved the token; its greeting is part of the proof.
  struct Admitted {
    UniqueFd fd;
    Protection protection;
    std::string peer;  // its address, for messages
    int listener = -1;
    std::vector<std::byte> greeting;
  };
  using Dropped = std::function<void(std::string_view peer, std::string_view why)>;

  // A greeting has `greeting_bytes`. `dropped` is called for every dropped stranger.
  Strangers(const Token& token, std::string_view context, std::size_t greeting_bytes,
            const EncryptionPolicy& policy, StrangerLimits limits, Dropped dropped);
  ~Strangers();

  // Accepts pending connections of a listener; not while accepts() is false.
  void accept_from(int listener);
  // False for a short time after the process ran out of descriptors.
  bool accepts() const { return has_passed(accept_again_); }

  // Adds what to poll for. / Handles the result: `entries` are those that add_polls() added, in
  // order.
  void add_polls(std::vector<pollfd>& entries) const;
  std::vector<Admitted> serve(std::span<const pollfd> entries);
  void drop_late();
  // When drop_late() or accept_from() has to be called next.
  Deadline next_moment() const;

  void clear();

 private:
  struct Stranger;

  bool read(Stranger& stranger);  // whether it is admitted; throws if it must be dropped
  bool drop_oldest(std::string_view why);

  Token token_;
  std::string context_;
  std::size_t greeting_bytes_;
  EncryptionPolicy policy_;
  StrangerLimits limits_;
  Dropped dropped_;
  std::map<std::uint64_t, Stranger> strangers_;  // the oldest first
  std::uint64_t next_ = 0;
  Deadline accept_again_ = Deadline::min();
};

}  // namespace lockstep
