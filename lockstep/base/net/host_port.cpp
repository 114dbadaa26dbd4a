#include "lockstep/base/net/host_port.h"

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {

std::uint16_t parse_port(std::string_view text, std::string_view what) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::kInvalidArgument, "the {} is '{}'; it should be a number from 0 to 65535", what,
         text);
  }
  return port;
}

HostPort parse_host_port(std::string_view text) {
  const auto refuse = [&]() {
    fail(ErrorCode::kInvalidArgument,
         "'{}' is not an address; write HOST:PORT, like node0:29400 or [::1]:29400", text);
  };
  std::string_view host;
  std::string_view port;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == std::string_view::npos || !text.substr(close + 1).starts_with(':')) refuse();
    host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else {
    const auto colon = text.find(':');
    if (colon == std::string_view::npos || colon != text.rfind(':')) refuse();
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (host.empty()) refuse();
  return {std::string(host), parse_port(port, "port of '" + std::string(text) + "'")};
}

std::string format_host_port(const HostPort& address) {
  const bool is_ipv6 = address.host.find(':') != std::string::npos;
  return is_ipv6 ? fmt::format("[{}]:{}", address.host, address.port)
                 : fmt::format("{}:{}", address.host, address.port);
}

bool is_loopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace lockstep
