// Where a service listens: "node0:29400", "127.0.0.1:0", "[::1]:29400".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

struct HostPort {
  std::string host;
  std::uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// An IPv6 address stands in brackets. Error(kInvalidArgument) quotes the text and shows an example.
HostPort parse_host_port(std::string_view text);
std::string format_host_port(const HostPort& address);

// A decimal number from 0 to 65535; Error(kInvalidArgument) otherwise. `what` names it in the
// error.
std::uint16_t parse_port(std::string_view text, std::string_view what = "port");

// localhost, 127.x.x.x or ::1: an address that only this machine can reach.
bool is_loopback(std::string_view host);

}  // namespace lockstep
