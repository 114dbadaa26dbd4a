// Operations drawn at random, several in flight, against the oracle: whatever an operation can be
// (v-variants, a user's reduction, any type, root, algorithm and placement) comes with everything
// else. All ranks draw alike; a failure names the drawn operation. See ranks.h for how it runs.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include "lockstep/comm/schedule/schedule.h"
#include "tests/comm/oracle.h"
#include "tests/comm/ranks.h"

namespace lockstep {
namespace {

using testing::make_element;
using testing::on_every_size;
using Bytes = std::vector<std::byte>;
using Counts = std::vector<std::size_t>;

// Bits of all contributions, one xor the other, whatever their type is.
constexpr int kContext = 42;
void combine_bits(void* accumulator, const void* operand, std::size_t count, DType dtype,
                  void* context) {
  if (*static_cast<const int*>(context) != kContext) return;  // found out by the result
  auto* a = static_cast<std::byte*>(accumulator);
  const auto* b = static_cast<const std::byte*>(operand);
  for (std::size_t i = 0; i < count * size_of(dtype); ++i) a[i] ^= b[i];
}

const UserReduction& exclusive_or() {
  static int context = kContext;
  static const UserReduction kReduction{"exclusive or", combine_bits, &context};
  return kReduction;
}

struct Drawn {
  Collective kind = Collective::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op;
  int ranks = 1;
  int root = 0;
  bool varying = false;
  bool in_place = false;
  bool symmetric = false;
  std::size_t offset = 0;      // elements in front of the data, so that it begins anywhere
  std::vector<Counts> counts;  // all_to_all: [from][to]; others: [0][rank], or [0][0] of vectors
  std::string algorithm;
  unsigned seed = 0;
};

std::string text(const Drawn& d) {
  std::string sizes;
  for (const Counts& row : d.counts) sizes += fmt::format("[{}]", fmt::join(row, ","));
  return fmt::format("{}{} of {} by '{}', {}, {} ranks, root {}, counts {}, offset {}, {}{}",
                     name(d.kind), d.varying ? "_v" : "", name(d.dtype), d.algorithm, name(d.op),
                     d.ranks, d.root, sizes, d.offset, d.in_place ? "in place" : "out of place",
                     d.symmetric ? ", symmetric" : "");
}

std::size_t sum(const Counts& counts, int first, int last) {
  return std::accumulate(counts.begin() + first, counts.begin() + last, std::size_t{0});
}

std::size_t given_count(const Drawn& d, int rank) {
  switch (d.kind) {
    case Collective::kScatter:
      return rank == d.root ? sum(d.counts[0], 0, d.ranks) : 0;
    case Collective::kReduceScatter:
      return sum(d.counts[0], 0, d.ranks);
    case Collective::kGather:
    case Collective::kAllGather:
      return d.counts[0][static_cast<std::size_t>(rank)];
    case Collective::kAllToAll:
      return sum(d.counts[static_cast<std::size_t>(rank)], 0, d.ranks);
    default:
      return d.counts[0][0];
  }
}

std::size_t got_count(const Drawn& d, int rank) {
  switch (d.kind) {
    case Collective::kScatter:
    case Collective::kReduceScatter:
      return d.counts[0][static_cast<std::size_t>(rank)];
    case Collective::kGather:
      return rank == d.root ? sum(d.counts[0], 0, d.ranks) : 0;
    case Collective::kAllGather:
      return sum(d.counts[0], 0, d.ranks);
    case Collective::kAllToAll: {
      std::size_t total = 0;
      for (const Counts& row : d.counts) total += row[static_cast<std::size_t>(rank)];
      return total;
    }
    case Collective::kReduce:
      return rank == d.root ? d.counts[0][0] : 0;
    default:
      return d.counts[0][0];
  }
}

// 1 or 2, so that reductions of few ranks are exact in 16 bits; any bits where they only move.
std::uint64_t drawn_bits(const Drawn& d, int rank, std::size_t i) {
  std::uint64_t x =
      d.seed * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(rank) * 0x100000001b3u;
  x = (x ^ i) * 0xff51afd7ed558ccdu;
  return x ^ (x >> 31);
}
int drawn_number(const Drawn& d, int rank, std::size_t i) {
  return 1 + static_cast<int>(drawn_bits(d, rank, i) & 1);
}

Bytes input(const Drawn& d, int rank) {
  Bytes bytes(given_count(d, rank) * size_of(d.dtype));
  with_type(d.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < bytes.size() / sizeof(T); ++i) {
      const std::uint64_t bits = drawn_bits(d, rank, i);
      const T number = make_element<T>(drawn_number(d, rank, i));
      const bool any = !reduces(d.kind) || d.op.kind == ReduceOp::kUser;
      std::memcpy(bytes.data() + i * sizeof(T), any ? static_cast<const void*>(&bits) : &number,
                  sizeof(T));
    }
  });
  return bytes;
}

template <class T>
T reduced(const Drawn& d, std::size_t i) {
  std::int64_t whole = drawn_number(d, 0, i);
  for (int rank = 1; rank < d.ranks; ++rank) {
    const int next = drawn_number(d, rank, i);
    switch (d.op.kind) {
      case ReduceOp::kProd:
        whole *= next;
        break;
      case ReduceOp::kMin:
        whole = std::min<std::int64_t>(whole, next);
        break;
      case ReduceOp::kMax:
        whole = std::max<std::int64_t>(whole, next);
        break;
      default:
        whole += next;
    }
  }
  if (d.op.kind != ReduceOp::kMean) return make_element<T>(whole);
  if constexpr (std::is_integral_v<T>) return static_cast<T>(whole / d.ranks);
  if constexpr (sizeof(T) == 8) return static_cast<T>(static_cast<double>(whole) / d.ranks);
  const float mean = static_cast<float>(whole) / static_cast<float>(d.ranks);
  if constexpr (std::is_same_v<T, Half>) return to_half(mean);
  if constexpr (std::is_same_v<T, BFloat16>) return to_bfloat16(mean);
  if constexpr (std::is_same_v<T, float>) return mean;
}

// Elements [first, first + count) of all inputs combined.
Bytes combined(const Drawn& d, std::size_t first, std::size_t count) {
  const std::size_t size = size_of(d.dtype);
  Bytes bytes(count * size);
  if (d.op.kind == ReduceOp::kUser) {
    for (int rank = 0; rank < d.ranks; ++rank) {
      const Bytes in = input(d, rank);
      for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] ^= in[first * size + i];
    }
    return bytes;
  }
  with_type(d.dtype, [&](auto zero) {
    using T = decltype(zero);
    for (std::size_t i = 0; i < count; ++i) {
      const T element = reduced<T>(d, first + i);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
  });
  return bytes;
}

Bytes expected(const Drawn& d, int rank) {
  const std::size_t size = size_of(d.dtype);
  Bytes bytes;
  const auto append = [&](const Bytes& from, std::size_t first, std::size_t count) {
    const auto begin = from.begin() + static_cast<std::ptrdiff_t>(first * size);
    bytes.insert(bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(count * size));
  };
  if (got_count(d, rank) == 0) return bytes;
  switch (d.kind) {
    case Collective::kBroadcast:
      return input(d, d.root);
    case Collective::kReduce:
    case Collective::kAllReduce:
      return combined(d, 0, d.counts[0][0]);
    case Collective::kReduceScatter:
      return combined(d, sum(d.counts[0], 0, rank), got_count(d, rank));
    case Collective::kScatter:
      append(input(d, d.root), sum(d.counts[0], 0, rank), got_count(d, rank));
      return bytes;
    case Collective::kAllToAll:
      for (int from = 0; from < d.ranks; ++from) {
        const Counts& row = d.counts[static_cast<std::size_t>(from)];
        append(input(d, from), sum(row, 0, rank), row[static_cast<std::size_t>(rank)]);
      }
      return bytes;
    default:
      for (int from = 0; from < d.ranks; ++from) append(input(d, from), 0, given_count(d, from));
      return bytes;
  }
}

// One drawn operation with its memory on this rank.
class Operation {
 public:
  Operation(Communicator& comm, const Drawn& drawn) : drawn_(drawn), rank_(comm.rank()) {
    const std::size_t size = size_of(drawn.dtype);
    const Bytes in = input(drawn, rank_);
    given_ = given_count(drawn, rank_);
    got_ = got_count(drawn, rank_);
    const std::size_t in_at = drawn.offset * size;
    const bool one = drawn.in_place || drawn.kind == Collective::kBroadcast;
    // Symmetric memory is as large on all ranks.
    std::size_t most = 0;
    for (int r = 0; r < drawn.ranks; ++r) {
      most =
          std::max(most, drawn.offset + given_count(drawn, r) + drawn.offset + got_count(drawn, r));
    }
    std::byte* memory = nullptr;
    if (drawn.symmetric) {
      symmetric_ = comm.allocate(most * size);
      memory = symmetric_.data();
    } else {
      private_ = std::make_unique<std::max_align_t[]>(most * size / sizeof(std::max_align_t) + 1);
      memory = reinterpret_cast<std::byte*>(private_.get());
    }
    in_ = memory + in_at;
    out_ = one ? in_ : in_ + in.size() + in_at;
    const Counts& row = drawn.counts[0];
    const bool root = rank_ == drawn.root;
    if (one &&
        (drawn.kind == Collective::kAllGather || (drawn.kind == Collective::kGather && root))) {
      in_ = out_ + sum(row, 0, rank_) * size;
    } else if (one && (drawn.kind == Collective::kReduceScatter ||
                       (drawn.kind == Collective::kScatter && root))) {
      out_ = in_ + sum(row, 0, rank_) * size;
    }
    if (!in.empty()) std::memcpy(in_, in.data(), in.size());
  }

  Call call() const {
    const ConstData in(given_ > 0 ? in_ : nullptr, given_, drawn_.dtype);
    const Data out(got_ > 0 ? out_ : nullptr, got_, drawn_.dtype);
    return make(in, out).with(drawn_.algorithm);
  }

  void check() const {
    const Bytes wanted = expected(drawn_, rank_);
    ASSERT_EQ(wanted.size(), got_ * size_of(drawn_.dtype)) << text(drawn_);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (out_[i] == wanted[i]) continue;
      ADD_FAILURE() << "rank " << rank_ << ", byte " << i << ": " << text(drawn_);
      return;
    }
    if (drawn_.in_place || drawn_.kind == Collective::kBroadcast) return;
    const Bytes in = input(drawn_, rank_);
    if (!in.empty()) {
      EXPECT_EQ(std::memcmp(in_, in.data(), in.size()), 0) << "input changed: " << text(drawn_);
    }
  }

 private:
  Call make(ConstData in, Data out) const {
    const Counts& row = drawn_.counts[0];
    switch (drawn_.kind) {
      case Collective::kBroadcast:
        return broadcast(out, drawn_.root);
      case Collective::kScatter:
        return drawn_.varying ? scatter_v(in, row, out, drawn_.root)
                              : scatter(in, out, drawn_.root);
      case Collective::kGather:
        return drawn_.varying ? gather_v(in, out, row, drawn_.root) : gather(in, out, drawn_.root);
      case Collective::kReduce:
        return reduce(in, out, drawn_.op, drawn_.root);
      case Collective::kAllGather:
        return drawn_.varying ? all_gather_v(in, out, row) : all_gather(in, out);
      case Collective::kReduceScatter:
        return reduce_scatter(in, out, drawn_.op);
      case Collective::kAllToAll: {
        if (!drawn_.varying) return all_to_all(in, out);
        Counts from;
        for (const Counts& sent : drawn_.counts)
          from.push_back(sent[static_cast<std::size_t>(rank_)]);
        return all_to_all_v(in, drawn_.counts[static_cast<std::size_t>(rank_)], out, from);
      }
      default:
        return all_reduce(in, out, drawn_.op);
    }
  }

  Drawn drawn_;
  int rank_;
  std::size_t given_ = 0;
  std::size_t got_ = 0;
  std::byte* in_ = nullptr;
  std::byte* out_ = nullptr;
  std::unique_ptr<std::max_align_t[]> private_;
  SymmetricBuffer symmetric_;
};

Drawn draw(std::mt19937& random, const Communicator& comm) {
  const int ranks = comm.size();
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Drawn d;
  d.ranks = ranks;
  d.seed = static_cast<unsigned>(random());
  d.kind = kScheduledCollectives[below(std::size(kScheduledCollectives))];
  d.dtype = kAllDTypes[below(std::size(kAllDTypes))];
  const auto op = static_cast<ReduceOp::Kind>(below(testing::takes_user_operations(comm) ? 6 : 5));
  d.op = op == ReduceOp::kUser ? ReduceOp(exclusive_or()) : ReduceOp(op);
  d.root = static_cast<int>(below(static_cast<std::size_t>(ranks)));
  d.in_place = below(2) == 0;
  d.symmetric = below(3) == 0;
  d.offset = below(4);
  const bool blocks = d.kind != Collective::kBroadcast && d.kind != Collective::kReduce &&
                      d.kind != Collective::kAllReduce && d.kind != Collective::kReduceScatter;
  d.varying = blocks && below(2) == 0;
  constexpr std::size_t kSizes[] = {0, 1, 2, 13, 64, 65, 500, 3001, 20'000};
  const bool to_all = d.kind == Collective::kAllToAll;
  const std::size_t equal = kSizes[below(std::size(kSizes))];
  d.counts.assign(to_all ? static_cast<std::size_t>(ranks) : 1,
                  Counts(static_cast<std::size_t>(ranks), equal));
  for (std::size_t i = 0; d.varying && i < d.counts.size(); ++i) {
    for (std::size_t j = 0; j < d.counts[i].size(); ++j) {
      // In place what goes and what comes have to be as long.
      d.counts[i][j] =
          to_all && d.in_place && j < i ? d.counts[j][i] : kSizes[below(std::size(kSizes) - 1)];
    }
  }
  const auto algorithms = schedule::algorithms(d.kind);
  if (testing::has_schedules(comm) && below(2) == 0) {
    const schedule::Algorithm& chosen = algorithms[below(algorithms.size())];
    schedule::Shape shape;
    shape.ranks = ranks;
    if (!chosen.refuses(shape)) d.algorithm = chosen.name;
  }
  return d;
}

// --gtest_random_seed=N draws others.
TEST(Drawn, OperationsInFlightComputeWhatTheyShould) {
  on_every_size([](Communicator& comm) {
    const int seed = GTEST_FLAG_GET(random_seed);
    std::mt19937 random(static_cast<unsigned>(comm.size() + 100 * seed));
    for (int batch = 0; batch < 40; ++batch) {
      std::vector<std::unique_ptr<Operation>> operations;
      for (auto left = 1 + random() % 4; left > 0; --left) {
        operations.push_back(std::make_unique<Operation>(comm, draw(random, comm)));
      }
      std::vector<Work> works;
      for (std::size_t i = 0; i + 1 < operations.size(); ++i) {
        works.push_back(comm.start(operations[i]->call()));
      }
      comm.run(operations.back()->call());
      for (const Work& work : works) work.wait();
      for (const auto& operation : operations) operation->check();
    }
  });
}

}  // namespace
}  // namespace lockstep
