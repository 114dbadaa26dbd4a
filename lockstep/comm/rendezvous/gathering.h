// What the rendezvous server knows about exchanges, without the network.
//
// A gathering collects one blob from each of `size` members under a key and is over once all are
// there. Clients are known by numbers that the server gives them.
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

// A gathering that is over.
struct Gathered {
  std::vector<ClientId> clients;             // in the order of members
  std::shared_ptr<const std::string> reply;  // the kBlob frames that every one of them gets
};

class Gatherings {
 public:
  // `noun` is what errors call a member: "rank" or "node".
  Gatherings(std::string_view noun, int size) : noun_(noun), size_(size) {}

  // Adds a client's deposit; when it was the last, the gathering is over and forgotten, so that
  // its key may be used again. Throws Error(kMismatch) for a member that cannot be, is already
  // there, or believes in another size. A client has at most one deposit at a time.
  std::optional<Gathered> add(ClientId client, Deposit deposit);

  // Ends the gathering that `client` waits in, if any, because the client has gone.
  struct Broken {
    int member = 0;
    std::vector<ClientId> others;
  };
  std::optional<Broken> withdraw(ClientId client);

  bool waits(ClientId client) const { return key_of_.contains(client); }

  // The members that the client still waits for.
  std::vector<int> missing(ClientId client) const;

 private:
  struct Present {
    ClientId client;
    std::string blob;
  };
  using Gathering = std::map<int, Present>;  // by member

  std::string noun_;
  int size_;
  std::map<std::string, Gathering> by_key_;
  std::map<ClientId, std::string> key_of_;
};

}  // namespace lockstep::rendezvous
