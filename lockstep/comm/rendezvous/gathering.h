// The state of exchanges in the rendezvous server, without the network.
//
// A gathering collects one blob from each of `size` members under a key and is complete when all
// have arrived. The server numbers its clients.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::rendezvous {

using ClientId = std::uint64_t;

struct Deposit {
  std::string key;
  int member = 0;
  int size = 0;
  std::string blob;
};

// A complete gathering.
struct Gathered {
  std::vector<ClientId> clients;  // in the order of members
  std::vector<int> members;
  std::vector<std::string> blobs;
  std::shared_ptr<const std::string> reply;  // the kBlob frames that every one of them gets
};

class Gatherings {
 public:
  // `noun` is the word for a member in errors: "rank" or "node". A gathering may have fewer members
  // than `size`, but not fewer than `least`; all of its members say the same number.
  Gatherings(std::string_view noun, int size, int least)
      : noun_(noun), size_(size), least_(least) {}

  // Adds a client's deposit; the last one completes the gathering, and its key may be used again.
  // Throws Error(kMismatch) for a member that is out of range, has already joined, or has another
  // size. A client has at most one deposit at a time.
  std::optional<Gathered> add(ClientId client, Deposit deposit);

  // Completes a gathering without those that have not arrived, whose blobs are empty; nothing where
  // fewer than `least` members, or not the first one, have arrived.
  std::optional<Gathered> settle(const std::string& key, int least);
  // Whether settle() would.
  bool may_settle(const std::string& key, int least) const;

  // Throws Error(kMismatch) for a member that is out of range or has another size.
  void check(const Deposit& deposit) const;

  // Ends the gathering of a lost client, if it waits in one.
  struct Broken {
    int member = 0;
    std::vector<ClientId> others;
  };
  std::optional<Broken> withdraw(ClientId client);
  // The others go on waiting for it, or for settle().
  void forget(ClientId client);

  bool waits(ClientId client) const { return key_of_.contains(client); }

  // The members that the client still waits for.
  std::vector<int> missing(ClientId client) const;

 private:
  struct Present {
    ClientId client;
    std::string blob;
  };
  struct Gathering {
    int size = 0;
    std::map<int, Present> present;  // by member
  };

  Gathered complete(const std::string& key);

  std::string noun_;
  int size_;
  int least_;
  std::map<std::string, Gathering> by_key_;
  std::map<ClientId, std::string> key_of_;
};

}  // namespace lockstep::rendezvous
