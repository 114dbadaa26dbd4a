// Which connections are encrypted (comm.encrypt, comm.trusted_network).
#pragma once

#include <cstdint>

namespace lockstep {

// kAuto: connections that leave the machine.
enum class EncryptChoice : std::uint8_t { kAuto, kOff, kOn };

struct EncryptionPolicy {
  EncryptChoice choice = EncryptChoice::kAuto;
  bool trusted_network = false;  // kAuto encrypts nothing

  // What this end of a connected socket wants. Local sockets are never encrypted: they cannot be
  // read by others, and carry descriptors.
  bool wants_encryption(int socket) const;
};

// Whether a socket is TCP between two different addresses, none of them the loopback. Both ends
// come to the same answer unless something between them changes addresses.
bool leaves_machine(int socket);

}  // namespace lockstep
