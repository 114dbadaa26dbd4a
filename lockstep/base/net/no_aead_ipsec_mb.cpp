#include "lockstep/base/net/aead_cipher.h"

namespace lockstep {

std::unique_ptr<AeadCipher> make_ipsec_mb_cipher(const AeadKey&, Aead::Use) { return nullptr; }

}  // namespace lockstep
