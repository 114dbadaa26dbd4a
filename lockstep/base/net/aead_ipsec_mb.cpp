#include <dlfcn.h>
#define NO_COMPAT_IMB_API_053  // without hundreds of names of an earlier version
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include <array>
#include <cstdlib>
#include <string_view>

#include "lockstep/base/net/aead_cipher.h"

namespace lockstep {
namespace {

// Null where the library or the instructions are missing. The manager is a table of functions here,
// so all threads share it. The library stays loaded for good.
const IMB_MGR* load_manager() {
  const char* wanted = std::getenv("LOCKSTEP_IPSEC_MB");
  if (wanted != nullptr && std::string_view(wanted) == "0") return nullptr;
  void* library = ::dlopen("libIPSec_MB.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return nullptr;
  const auto version =
      reinterpret_cast<decltype(&imb_get_version)>(::dlsym(library, "imb_get_version"));
  const auto make = reinterpret_cast<decltype(&alloc_mb_mgr)>(::dlsym(library, "alloc_mb_mgr"));
  const auto prepare =
      reinterpret_cast<decltype(&init_mb_mgr_auto)>(::dlsym(library, "init_mb_mgr_auto"));
  if (version == nullptr || make == nullptr || prepare == nullptr) return nullptr;
  // Later versions append to the table that these headers describe.
  if (version() < IMB_VERSION_NUM) return nullptr;
  IMB_MGR* manager = make(0);
  if (manager == nullptr) return nullptr;
  IMB_ARCH architecture = IMB_ARCH_NONE;
  prepare(manager, &architecture);
  const bool has_vectors =
      architecture == IMB_ARCH_AVX512 && (manager->features & IMB_FEATURE_VAES) != 0;
  return has_vectors ? manager : nullptr;
}

const IMB_MGR* shared_manager() {
  static const IMB_MGR* const manager = load_manager();
  return manager;
}

class IpsecMbCipher final : public AeadCipher {
 public:
  IpsecMbCipher(const IMB_MGR& manager, const AeadKey& key, Aead::Use use)
      : manager_(manager), seals_(use == Aead::Use::kSeal) {
    IMB_AES256_GCM_PRE(&manager_, key.data(), &key_);
  }
  ~IpsecMbCipher() override {
    ::OPENSSL_cleanse(&key_, sizeof key_);
    ::OPENSSL_cleanse(&message_, sizeof message_);
  }

  void begin(std::uint64_t number, std::span<const std::byte> header) override {
    IMB_AES256_GCM_INIT(&manager_, &key_, &message_, aead_nonce(number).data(),
                        reinterpret_cast<const std::uint8_t*>(header.data()), header.size());
  }

  void pass(std::span<const std::byte> from, std::byte* to) override {
    if (from.empty()) return;
    auto* const target = reinterpret_cast<std::uint8_t*>(to);
    const auto* const source = reinterpret_cast<const std::uint8_t*>(from.data());
    if (seals_) {
      IMB_AES256_GCM_ENC_UPDATE(&manager_, &key_, &message_, target, source, from.size());
    } else {
      IMB_AES256_GCM_DEC_UPDATE(&manager_, &key_, &message_, target, source, from.size());
    }
  }

  void end(AeadTag tag) override {
    IMB_AES256_GCM_ENC_FINALIZE(&manager_, &key_, &message_,
                                reinterpret_cast<std::uint8_t*>(tag.data()), tag.size());
  }

  bool matches(std::span<const std::byte, kAeadTagBytes> tag) override {
    std::array<std::uint8_t, kAeadTagBytes> expected;
    IMB_AES256_GCM_DEC_FINALIZE(&manager_, &key_, &message_, expected.data(), expected.size());
    return ::CRYPTO_memcmp(expected.data(), tag.data(), expected.size()) == 0;
  }

 private:
  const IMB_MGR& manager_;
  const bool seals_;
  alignas(64) gcm_key_data key_{};  // it is read and written as aligned vectors
  gcm_context_data message_{};
};

}  // namespace

std::unique_ptr<AeadCipher> make_ipsec_mb_cipher(const AeadKey& key, Aead::Use use) {
  const IMB_MGR* const manager = shared_manager();
  return manager != nullptr ? std::make_unique<IpsecMbCipher>(*manager, key, use) : nullptr;
}

}  // namespace lockstep
