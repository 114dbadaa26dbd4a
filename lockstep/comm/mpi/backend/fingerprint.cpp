#include "lockstep/comm/mpi/backend/fingerprint.h"

#include <algorithm>
#include <vector>

#include "lockstep/base/text/text.h"

namespace lockstep::mpi {
namespace {

std::uint64_t hash(std::span<const std::size_t> counts) {
  std::uint64_t value = 0xcbf29ce484222325u;  // FNV-1a, by whole numbers
  for (std::size_t count : counts) value = (value ^ count) * 0x100000001b3u;
  return value;
}

// The side of which all ranks have as much: one block where there are blocks.
ConstData common_side(const Call& call) {
  return call.kind == Collective::kScatter ? ConstData(call.out) : call.in;
}

}  // namespace

Fingerprint fingerprint(const Call& call, std::uint64_t sequence) {
  Fingerprint print;
  print.sequence = sequence;
  print.kind = call.kind;
  print.varying = call.varying;
  print.dtype = common_side(call).dtype;
  if (has_root(call.kind)) print.root = call.root;
  if (!call.varying) {
    print.count = common_side(call).count;
  } else if (call.kind != Collective::kAllToAll) {
    print.counts_hash = hash(call.counts);
    for (std::size_t count : call.counts) print.count += count;
  }
  if (reduces(call.kind)) {
    print.op = call.op.kind;
    if (call.op.kind == ReduceOp::kUser) {
      call.op.user->name.copy(print.user_op, sizeof(print.user_op) - 1);
    }
  }
  return print;
}

Fingerprint fingerprint(Special special, std::size_t bytes, std::uint64_t sequence) {
  Fingerprint print;
  print.sequence = sequence;
  print.special = special;
  print.count = bytes;
  return print;
}

std::string describe(const Fingerprint& print) {
  if (print.special == Special::kSplit) return "split";
  if (print.special == Special::kAllocate) return fmt::format("allocate of {} bytes", print.count);
  UserReduction user;
  user.name = print.user_op;
  Call call;
  call.kind = print.kind;
  call.varying = print.varying;
  call.in = ConstData(&print, print.count, print.dtype);
  call.op = print.op == ReduceOp::kUser ? ReduceOp(user) : ReduceOp(print.op);
  call.root = print.root;
  return lockstep::describe(call);
}

std::optional<Error> compare(std::span<const Fingerprint> all) {
  struct Party {
    Fingerprint print;
    std::vector<int> ranks;
  };
  std::vector<Party> parties;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto party = std::find_if(parties.begin(), parties.end(),
                              [&](const Party& p) { return p.print == all[rank]; });
    if (party == parties.end()) party = parties.insert(party, {all[rank], {}});
    party->ranks.push_back(static_cast<int>(rank));
  }
  if (parties.size() == 1) return std::nullopt;
  std::stable_sort(parties.begin(), parties.end(),
                   [](const Party& a, const Party& b) { return a.ranks.size() > b.ranks.size(); });
  std::string text = "ranks disagree about what to do:";
  std::vector<int> deviating;
  for (std::size_t p = 0; p < parties.size(); ++p) {
    const Party& party = parties[p];
    text += fmt::format("{} {} {} called {}", p == 0 ? "" : ";",
                        party.ranks.size() == 1 ? "rank" : "ranks", join_ranks(party.ranks),
                        describe(party.print));
    if (party.print.varying && party.print.counts_hash != parties[0].print.counts_hash) {
      text += " with other block sizes";
    }
    if (p > 0) deviating.insert(deviating.end(), party.ranks.begin(), party.ranks.end());
  }
  std::sort(deviating.begin(), deviating.end());
  return Error(ErrorCode::kMismatch, text, deviating);
}

std::optional<Error> compare_block_sizes(std::span<const std::uint64_t> sizes, int ranks) {
  const auto at = [&](int rank, int side, int peer) {
    return sizes[(rank * 2 + side) * ranks + peer];
  };
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      const std::uint64_t sent = at(from, 0, to);
      const std::uint64_t expected = at(to, 1, from);
      if (sent == expected) continue;
      return Error(
          ErrorCode::kMismatch,
          fmt::format("all_to_all_v: rank {} sends {} elements to rank {}, which expects {}", from,
                      sent, to, expected),
          {from, to});
    }
  }
  return std::nullopt;
}

}  // namespace lockstep::mpi
