#include "lockstep/base/file/content_hash.h"

#define XXH_STATIC_LINKING_ONLY  // for the size of a state
#include <xxhash.h>

#include "lockstep/base/text/hex.h"

namespace lockstep {

struct ContentHash::State {
  XXH3_state_t xxh3;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->xxh3);
}

ContentHash::~ContentHash() = default;

void ContentHash::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::string ContentHash::hex() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->xxh3));
  return to_hex(std::as_bytes(std::span(canonical.digest)));
}

std::string content_hash(std::string_view text) {
  ContentHash hash;
  hash.add(text);
  return hash.hex();
}

std::uint64_t short_hash(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace lockstep
