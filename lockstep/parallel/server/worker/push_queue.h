// The queue of slices that are ready to be pushed.
//
// What has been given to a connection cannot be overtaken. So at most `credit` bytes may be in
// flight to a server, pushed and not yet acknowledged; the others wait here, where a more urgent
// slice can still overtake them. One slice may always be in flight, whatever its size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace lockstep::parallel {

class PushQueue {
 public:
  PushQueue(int servers, std::size_t credit) : credit_(credit), servers_(to_index(servers)) {}

  // A lower number is more urgent; ties go by slice number.
  void add(std::size_t slice, std::uint64_t urgency, int server, std::size_t bytes) {
    servers_[to_index(server)].ready.insert({urgency, slice, bytes});
  }

  // The next slice to push, if any; it counts as in flight.
  std::optional<std::size_t> next() {
    Server* best = nullptr;
    for (Server& server : servers_) {
      if (server.ready.empty()) continue;
      const std::size_t bytes = std::get<2>(*server.ready.begin());
      if (server.under_way > 0 && server.under_way + bytes > credit_) continue;
      if (best == nullptr || *server.ready.begin() < *best->ready.begin()) best = &server;
    }
    if (best == nullptr) return std::nullopt;
    const auto [urgency, slice, bytes] = *best->ready.begin();
    best->ready.erase(best->ready.begin());
    best->under_way += bytes;
    return slice;
  }

  void taken(int server, std::size_t bytes) { servers_[to_index(server)].under_way -= bytes; }

 private:
  struct Server {
    std::set<std::tuple<std::uint64_t, std::size_t, std::size_t>> ready;  // urgency, slice, bytes
    std::size_t under_way = 0;
  };
  static std::size_t to_index(int number) { return static_cast<std::size_t>(number); }

  std::size_t credit_;
  std::vector<Server> servers_;
};

}  // namespace lockstep::parallel
