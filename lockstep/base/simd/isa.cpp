#include "lockstep/base/simd/isa.h"

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/system/cpu_features.h"

namespace lockstep {
namespace {

std::vector<Isa> detect_isas() {
  const CpuFeatures& cpu = cpu_features();
  std::vector<Isa> isas;
  if (cpu.avx512 && cpu.amx_bf16) isas.push_back(Isa::kAmx);
  if (cpu.avx512) isas.push_back(Isa::kAvx512);
  if (cpu.avx2) isas.push_back(Isa::kAvx2);
  if (cpu.neon_bf16 && cpu.neon_f16_fma && cpu.neon_atomics) isas.push_back(Isa::kNeon16);
  if (cpu.neon) isas.push_back(Isa::kNeon);
  isas.push_back(Isa::kScalar);
  return isas;
}

Isa first_choice() {
  const char* forced = std::getenv("LOCKSTEP_KERNELS");
  if (forced == nullptr || *forced == '\0') return available_isas().front();
  return find_isa(forced);
}

Isa& current() {
  static Isa isa = first_choice();
  return isa;
}

}  // namespace

std::string_view name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kNeon:
      return "neon";
    case Isa::kNeon16:
      return "neon16";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

const std::vector<Isa>& available_isas() {
  static const std::vector<Isa> kIsas = detect_isas();
  return kIsas;
}

std::string available_isa_names() {
  std::string names;
  for (const Isa isa : available_isas()) {
    names += names.empty() ? "" : ", ";
    names += name(isa);
  }
  return names;
}

Isa find_isa(std::string_view wanted) {
  for (const Isa isa : available_isas()) {
    if (name(isa) == wanted) return isa;
  }
  fail(ErrorCode::kUnsupported,
       "kernel set '{}' (LOCKSTEP_KERNELS) cannot run on this CPU; these can: {}", wanted,
       available_isa_names());
}

Isa chosen_isa() { return current(); }

void choose_isa(Isa isa) { current() = find_isa(name(isa)); }

}  // namespace lockstep
