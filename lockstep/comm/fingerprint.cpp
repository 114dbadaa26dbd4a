#include "lockstep/comm/fingerprint.h"

#include <fmt/format.h>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"

namespace lockstep {
namespace {

// The finaliser of splitmix64: every input bit changes every output bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ull;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

std::uint64_t mix_in(std::uint64_t seed, std::uint64_t value) {
  return mix(seed + 0x9e3779b97f4a7c15ull + value);
}

std::uint64_t mix_in(std::uint64_t seed, std::string_view text) {
  for (char c : text) seed = mix_in(seed, static_cast<unsigned char>(c));
  return mix_in(seed, text.size());
}

std::uint64_t agreed_count(const Call& call) {
  switch (call.kind) {
    case Collective::kScatter:
    case Collective::kReduceScatter:
      return call.varying ? 0 : call.out.count;
    case Collective::kGather:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return call.varying ? 0 : call.in.count;
    case Collective::kReceive:
      return call.out.count;
    default:
      return call.in.count;
  }
}

std::uint64_t extra_of(const Call& call) {
  std::uint64_t extra = 0;
  if (!call.algorithm.empty()) extra = mix_in(extra, call.algorithm);
  if (reduces(call.kind) && call.op.kind == ReduceOp::kUser)
    extra = mix_in(extra, call.op.user->name);
  if (call.varying && call.kind != Collective::kAllToAll) {
    for (std::size_t count : call.counts) extra = mix_in(extra, count);
  }
  return extra;
}

}  // namespace

Fingerprint fingerprint_of(const Call& call, std::uint64_t sequence) {
  Fingerprint fingerprint;
  fingerprint.sequence = sequence;
  fingerprint.count = agreed_count(call);
  fingerprint.extra = extra_of(call);
  fingerprint.root = has_root(call.kind) ? call.root : 0;
  fingerprint.kind = call.kind;
  fingerprint.varying = call.varying;
  fingerprint.dtype = dtype_of_call(call);
  if (reduces(call.kind)) fingerprint.op = call.op.kind;
  return fingerprint;
}

std::uint64_t hash(const Fingerprint& f) {
  const std::uint64_t small =
      static_cast<std::uint64_t>(f.kind) | static_cast<std::uint64_t>(f.dtype) << 8 |
      static_cast<std::uint64_t>(f.op) << 16 | static_cast<std::uint64_t>(f.varying) << 24 |
      static_cast<std::uint64_t>(static_cast<std::uint32_t>(f.root)) << 32;
  // Three independent multiplications, then one finish: this is on the path of 8-byte calls.
  const std::uint64_t mixed = f.sequence * 0x9e3779b97f4a7c15ull ^ f.count * 0xbf58476d1ce4e5b9ull ^
                              (small + f.extra) * 0x94d049bb133111ebull;
  return mix(mixed) | 1;
}

std::string describe(const Fingerprint& f) {
  if (f.kind == Collective::kBarrier) {
    // An allocation is a barrier that agrees on a size.
    return f.count == 0 ? fmt::format("operation {}: barrier", f.sequence)
                        : fmt::format("operation {}: allocate {} bytes", f.sequence, f.count);
  }
  if (f.kind == Collective::kAllGather && f.extra == kSplitMark) {
    return fmt::format("operation {}: split", f.sequence);
  }
  if (f.kind == Collective::kAllGather && f.extra == kVerifyMark) {
    return fmt::format("operation {}: verification", f.sequence);
  }
  std::string text = fmt::format("operation {}: {}{} of {} {}", f.sequence, name(f.kind),
                                 f.varying ? "_v" : "", f.count, name(f.dtype));
  if (reduces(f.kind)) {
    text += f.op == ReduceOp::kUser ? ", a user's reduction"
                                    : fmt::format(", {}", name(ReduceOp(f.op)));
  }
  if (has_root(f.kind)) text += fmt::format(", root {}", f.root);
  return text;
}

Error disagreement(int rank, const Fingerprint& mine, int other, const Fingerprint& theirs) {
  return Error(ErrorCode::kMismatch,
               fmt::format("ranks disagree: rank {} called {}, but rank {} called {}", rank,
                           describe(mine), other, describe(theirs)),
               {other});
}

Error overdue(std::string_view what, std::chrono::nanoseconds waited, std::vector<int> awaited) {
  const bool several = awaited.size() > 1;
  const std::string text =
      fmt::format("{}: waited {} for {} {}; {} (comm.timeout sets how long to wait)", what,
                  format_seconds(std::chrono::duration<double>(waited).count()),
                  several ? "ranks" : "rank", join_ranks(awaited),
                  several ? "they are stuck, stopped or call something else"
                          : "it is stuck, stopped or calls something else");
  return Error(ErrorCode::kTimeout, text, std::move(awaited));
}

}  // namespace lockstep
