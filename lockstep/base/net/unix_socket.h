// Sockets inside one machine, which can carry file descriptors.
//
// Names live in Linux's abstract namespace: no file appears, and the name goes when the last
// descriptor of the listener is closed, whatever ended the process. Any user of the machine may
// connect to such a name, so both sides must prove themselves before they trust each other.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep {

// A random name that is unused and cannot be guessed.
std::string random_unix_name();

// A name is 1 to 107 bytes long. Error(kSystem) when it is taken.
UniqueFd listen_unix_abstract(std::string_view name, int backlog = 128);

// Error(kPeerLost) if no process on this machine listens under the name.
UniqueFd connect_unix_abstract(std::string_view name, Deadline deadline);

// The descriptors travel with the first byte, so `data` must not be empty. The receiver gets
// descriptors of its own, which close on exec; it must ask for exactly as many bytes as were sent
// with them, and gets Error(kProtocol) for more than `most_fds` descriptors.
inline constexpr std::size_t kMostFdsPerMessage = 64;
void send_with_fds(int socket, std::span<const std::byte> data, std::span<const int> fds,
                   Deadline deadline);
std::vector<UniqueFd> receive_with_fds(int socket, std::span<std::byte> data, std::size_t most_fds,
                                       Deadline deadline);

}  // namespace lockstep
