// The instruction sets of this CPU, and the choice of one.
#include "lockstep/base/simd/isa.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/simd/kernel_table.h"
#include "lockstep/base/system/cpu_features.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

// Every word of /proc/cpuinfo: among them are the names of features.
std::set<std::string> words_of_cpuinfo() {
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> words;
  for (std::string word; file >> word;) words.insert(word);
  return words;
}

TEST(CpuFeatures, AreThoseThatLinuxReports) {
  const auto words = words_of_cpuinfo();
  const auto has = [&](const auto&... names) { return (words.contains(names) && ...); };
  const CpuFeatures& cpu = cpu_features();
#if defined(__x86_64__)
  EXPECT_EQ(cpu.avx2, has("avx2", "fma", "f16c"));
  EXPECT_EQ(cpu.avx512, has("avx512f", "avx512bw", "avx512vl", "avx512dq"));
  EXPECT_EQ(cpu.avx512_bf16, cpu.avx512 && has("avx512_bf16"));
  if (!has("amx_tile", "amx_bf16")) {
    EXPECT_FALSE(cpu.amx_bf16);
  }
  EXPECT_FALSE(cpu.neon);
#elif defined(__aarch64__)
  if (!has("Features")) GTEST_SKIP() << "an emulator shows its host's /proc/cpuinfo";
  EXPECT_EQ(cpu.neon, has("asimd"));
  EXPECT_EQ(cpu.neon_bf16, has("bf16"));
  EXPECT_EQ(cpu.neon_f16_fma, has("asimdfhm"));
  EXPECT_EQ(cpu.neon_atomics, has("atomics"));
  EXPECT_FALSE(cpu.avx2);
#endif
}

TEST(Isas, AreNamedAndEndWithTheScalarOne) {
  EXPECT_EQ(available_isas().back(), Isa::kScalar);
  std::set<std::string_view> names;
  for (const Isa isa : available_isas()) {
    EXPECT_TRUE(names.insert(name(isa)).second) << name(isa);
    EXPECT_EQ(find_isa(name(isa)), isa);
  }
}

TEST(Isas, AreAvailableWithTheOneTheyExtend) {
  for (const Isa isa : available_isas()) {
    EXPECT_EQ(find_isa(name(base_isa(isa))), base_isa(isa));
    EXPECT_EQ(base_isa(base_isa(isa)), base_isa(isa));
  }
}

TEST(Isas, AnUnknownOneIsRefusedWithTheOnesThereAre) {
  try {
    find_isa("abacus");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("abacus"));
    EXPECT_THAT(error.what(), HasSubstr("scalar"));
  }
}

TEST(Isas, TheOneOfAnotherArchitectureCannotBeChosen) {
  const Isa before = chosen_isa();
#if defined(__x86_64__)
  EXPECT_THROW(choose_isa(Isa::kNeon), Error);
#else
  EXPECT_THROW(choose_isa(Isa::kAvx2), Error);
#endif
  EXPECT_EQ(chosen_isa(), before);
  choose_isa(Isa::kScalar);
  EXPECT_EQ(chosen_isa(), Isa::kScalar);
  choose_isa(before);
}

// Tables of tables that say whose they are.
struct Whose {
  Isa isa;
};
LOCKSTEP_KERNEL_TABLE(Whose, plain_table)
LOCKSTEP_KERNEL_TABLE_NEON16(Whose, neon16_table)
LOCKSTEP_KERNEL_TABLE_AMX(Whose, amx_table)

namespace scalar {
const Whose plain_table{Isa::kScalar}, neon16_table{Isa::kScalar}, amx_table{Isa::kScalar};
}
#if defined(__x86_64__)
namespace avx2 {
const Whose plain_table{Isa::kAvx2}, neon16_table{Isa::kAvx2}, amx_table{Isa::kAvx2};
}
namespace avx512 {
const Whose plain_table{Isa::kAvx512}, neon16_table{Isa::kAvx512}, amx_table{Isa::kAvx512};
}
namespace amx {
const Whose amx_table{Isa::kAmx};
}
#elif defined(__aarch64__)
namespace neon {
const Whose plain_table{Isa::kNeon}, neon16_table{Isa::kNeon}, amx_table{Isa::kNeon};
}
namespace neon16 {
const Whose neon16_table{Isa::kNeon16};
}
#endif

TEST(KernelTable, GivesTheTableOfAnInstructionSetOrOfTheOneItExtends) {
#if defined(__x86_64__)
  constexpr Isa kIsas[] = {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx};
#elif defined(__aarch64__)
  constexpr Isa kIsas[] = {Isa::kScalar, Isa::kNeon, Isa::kNeon16};
#else
  constexpr Isa kIsas[] = {Isa::kScalar};
#endif
  for (const Isa isa : kIsas) {
    EXPECT_EQ(plain_table(isa).isa, base_isa(isa)) << name(isa);
    EXPECT_EQ(neon16_table(isa).isa, isa == Isa::kNeon16 ? isa : base_isa(isa)) << name(isa);
    EXPECT_EQ(amx_table(isa).isa, isa == Isa::kAmx ? isa : base_isa(isa)) << name(isa);
  }
}

}  // namespace
}  // namespace lockstep
