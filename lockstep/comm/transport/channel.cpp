#include "lockstep/comm/transport/channel.h"

#include <algorithm>
#include <cstring>

namespace lockstep::transport {

std::size_t Channel::read(std::span<std::byte> into) {
  std::size_t total = 0;
  while (total < into.size()) {
    const std::span<const std::byte> arrived = peek();
    const std::size_t bytes = std::min(arrived.size(), into.size() - total);
    if (bytes == 0) break;
    std::memcpy(into.data() + total, arrived.data(), bytes);
    consume(bytes);
    total += bytes;
  }
  return total;
}

}  // namespace lockstep::transport
