#include "lockstep/base/net/encryption_policy.h"

#include "lockstep/base/net/socket.h"

namespace lockstep {

bool leaves_machine(int socket) {
  if (!is_tcp(socket)) return false;
  const std::string peer = peer_host(socket);
  return !is_loopback(peer) && peer != local_host(socket);
}

bool EncryptionPolicy::wants_encryption(int socket) const {
  switch (choice) {
    case EncryptChoice::kOff:
      return false;
    case EncryptChoice::kOn:
      return is_tcp(socket);
    case EncryptChoice::kAuto:
      return !trusted_network && leaves_machine(socket);
  }
  return true;
}

}  // namespace lockstep
