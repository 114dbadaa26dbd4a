// The vector kernels, compiled once per instruction set (base/simd/kernel_table.h).
//
// Words. A *vector* is what one register holds. A *pack* is one vector of memory in the form in
// which it is combined: the vector itself, or two vectors of float for the 16-bit types. A *tile*
// is the run of packs whose results are kept in registers while all inputs are taken in, so that
// every byte is read once and written once per output, however many inputs there are.
//
// Everything here has internal linkage and uses no function template of the standard library, for
// the reason that base/simd/vector.inl gives.
#pragma once

#include "lockstep/comm/reduce/asking.inl"
#include "lockstep/comm/reduce/formats.inl"

namespace lockstep::reduce::LOCKSTEP_ISA {
namespace {

// The bytes that are left of a buffer, as a whole vector with zeros behind them.
class Remainder {
 public:
  explicit Remainder(std::size_t bytes) : bytes_(bytes) {}
  const std::byte* fill(const std::byte* from) {
    copy(block_, from);
    return block_;
  }
  template <class T>
  void store(std::byte* to, Vector<T> x) {
    store_vector<false, T>(block_, x);
    copy(to, block_);
  }

 private:
  void copy(std::byte* to, const std::byte* from) const {
    std::size_t done = 0;
    if constexpr (kVectorBytes > 32) copy_piece<32>(to, from, done);
    if constexpr (kVectorBytes > 16) copy_piece<16>(to, from, done);
    copy_piece<8>(to, from, done);
    copy_piece<4>(to, from, done);
    copy_piece<2>(to, from, done);
    copy_piece<1>(to, from, done);
  }
  template <std::size_t kBytes>
  void copy_piece(std::byte* to, const std::byte* from, std::size_t& done) const {
    if ((bytes_ & kBytes) == 0) return;
    __builtin_memcpy(to + done, from + done, kBytes);
    done += kBytes;
  }

  alignas(kVectorBytes) std::byte block_[kVectorBytes] = {};
  std::size_t bytes_;
};

// base + offset in one register: the compiler would rather keep an index for every pack of a tile.
template <class Byte>
Byte* at(Byte* base, std::size_t offset) {
  base += offset;
  asm("" : "+r"(base));
  return base;
}

// What combine_tile() stores: a tile, to all outputs; the same past the cache; a tile to the first
// output, and an earlier one from there to the others; or a remainder, to all.
enum class Reach { kTile, kStreamedTile, kFirstOutput, kRemainder };

// How many tiles earlier. Measured on a Neoverse V1: to copy what was stored just now takes a
// seventh longer.
constexpr std::size_t kTilesBetween = 2;

// Whether the format adds vectors as they are stored.
template <class Format>
constexpr bool kAddsStored = requires(typename Format::Pack pack,
                                      Vector<typename Format::Stored> x) {
  pack = Format::widen(x);
  Format::add(pack, x);
};

// Takes one more vector of memory into a pack.
template <class Format, class Op>
inline __attribute__((always_inline)) void take(typename Format::Pack& pack,
                                                const std::byte* from) {
  if constexpr (Op::kAdds && kAddsStored<Format>) {
    Format::add(pack, load_vector<typename Format::Stored>(from));
  } else {
    const typename Format::Pack operand = Format::load(from);
    for (int v = 0; v < Format::kVectors; ++v) {
      pack.part[v] = Op::template apply<typename Format::Lane>(pack.part[v], operand.part[v]);
    }
  }
}

// Copies kBytes of the first output to the others, `offset` bytes into each, through general
// registers: a vector store takes a turn of a vector unit.
template <std::size_t kBytes>
inline __attribute__((always_inline)) void copy_results(const KernelCall& call,
                                                        std::size_t offset) {
  const std::byte* from = at(call.outputs[0], offset);
  for (std::size_t m = 1; m < call.output_count; ++m) {
    std::byte* to = at(call.outputs[m], offset);
#pragma GCC unroll 16
    for (std::size_t done = 0; done < kBytes; done += 2 * sizeof(std::uint64_t)) {
      std::uint64_t pair[2];
      __builtin_memcpy(pair, from + done, sizeof pair);
      asm volatile("" : "+r"(pair[0]), "+r"(pair[1]));
      __builtin_memcpy(to + done, pair, sizeof pair);
    }
  }
}

// Half of a tile's operations come before what follows in the code, half may come after it.
template <class Pack, int kPacks>
inline __attribute__((always_inline)) void split_operations([[maybe_unused]] Pack (&tile)[kPacks]) {
#if defined(__aarch64__)
#pragma GCC unroll 16
  for (int p = 0; p < kPacks; ++p) asm volatile("" : "+w"(tile[p].part[0]));
#endif
}

// Sums the two inputs of a call with two inputs. It copies an earlier tile of results after loading
// both; an earlier copy would delay the loads.
template <class Format, int kPacks>
inline __attribute__((always_inline)) void add_two_and_copy(const KernelCall& call,
                                                            std::size_t offset,
                                                            typename Format::Pack (&tile)[kPacks]) {
  Vector<typename Format::Stored> stored[2][kPacks];
#pragma GCC unroll 2
  for (int n = 0; n < 2; ++n) {
    const std::byte* from = at(call.inputs[n], offset);
#pragma GCC unroll 16
    for (int p = 0; p < kPacks; ++p) {
      stored[n][p] = load_vector<typename Format::Stored>(from + p * kVectorBytes);
    }
  }
#if defined(__aarch64__)
#pragma GCC unroll 16
  for (int p = 0; p < kPacks; ++p) asm volatile("" : "+w"(stored[0][p]), "+w"(stored[1][p]));
#endif
  copy_results<kPacks * kVectorBytes>(call, offset - kTilesBetween * kPacks * kVectorBytes);
#pragma GCC unroll 16
  for (int p = 0; p < kPacks; ++p) tile[p] = Format::widen(stored[0][p]);
#pragma GCC unroll 16
  for (int p = 0; p < kPacks; ++p) Format::add(tile[p], stored[1][p]);
}

template <class Format, class Op, int kPacks, Reach kReach>
void combine_tile_with_nans(const KernelCall& call, std::size_t offset);

// Combines kPacks packs, `offset` bytes into every buffer; of a remainder, only its first bytes.
template <class Format, class Op, int kPacks, Nans kNans, Reach kReach>
inline __attribute__((always_inline)) void combine_tile(const KernelCall& call, std::size_t offset,
                                                        std::size_t remainder_bytes = 0) {
  using Lane = typename Format::Lane;
  using Stored = typename Format::Stored;
  Remainder remainder(remainder_bytes);
  const auto input = [&](const std::byte* from) {
    return kReach == Reach::kRemainder ? remainder.fill(from) : from;
  };
  typename Format::Pack tile[kPacks];
  constexpr bool kCopies = kReach == Reach::kFirstOutput;
  constexpr bool kAddsTwo = kCopies && Op::kAdds && kAddsStored<Format>;
  if constexpr (kAddsTwo) {
    add_two_and_copy<Format>(call, offset, tile);
  } else {
    const std::byte* first = at(call.inputs[0], offset);
#pragma GCC unroll 16
    for (int p = 0; p < kPacks; ++p) tile[p] = Format::load(input(first + p * kVectorBytes));
  }
#pragma GCC unroll 4
  for (std::size_t n = kAddsTwo ? 2 : 1; n < call.input_count; ++n) {
    const std::byte* from = at(call.inputs[n], offset);
#pragma GCC unroll 16
    for (int p = 0; p < kPacks; ++p) take<Format, Op>(tile[p], input(from + p * kVectorBytes));
  }
  if constexpr (kCopies && !kAddsTwo) {
    split_operations(tile);
    copy_results<kPacks * kVectorBytes>(call, offset - kTilesBetween * kPacks * kVectorBytes);
  }
  if constexpr (kNans == Nans::kTestedByTile && std::is_floating_point_v<Lane>) {
    if (__builtin_expect(tile_has_nan(tile), false)) {
      return combine_tile_with_nans<Format, Op, kPacks, kReach>(call, offset);
    }
  }
  Vector<Stored> results[kPacks];
#pragma GCC unroll 16
  for (int p = 0; p < kPacks; ++p) {
    if constexpr (Op::kDivides) {
      for (int v = 0; v < Format::kVectors; ++v) {
        tile[p].part[v] = quotient<Lane>(tile[p].part[v], call.divisor);
      }
    }
    results[p] = Format::template narrow<kNans>(tile[p]);
  }
  const std::size_t stored = kCopies ? 1 : call.output_count;
  for (std::size_t m = 0; m < stored; ++m) {
    std::byte* to = at(call.outputs[m], offset);
#pragma GCC unroll 16
    for (int p = 0; p < kPacks; ++p) {
      if constexpr (kReach == Reach::kRemainder) {
        remainder.store<Stored>(to, results[p]);
      } else {
        store_vector<kReach == Reach::kStreamedTile, Stored>(to + p * kVectorBytes, results[p]);
      }
    }
  }
}

// A tile again whose results have NaNs; nothing of it has been stored yet.
template <class Format, class Op, int kPacks, Reach kReach>
[[gnu::noinline]] void combine_tile_with_nans(const KernelCall& call, std::size_t offset) {
  combine_tile<Format, Op, kPacks, Nans::kTested, kReach>(call, offset);
}

// Bytes until every output lies on a cache line; `none` where they never all do.
[[maybe_unused]] std::size_t bytes_to_line(const KernelCall& call, std::size_t element,
                                           std::size_t none) {
  const auto misalignment = [&](std::size_t m) {
    return reinterpret_cast<std::uintptr_t>(call.outputs[m]) % kLine;
  };
  for (std::size_t m = 1; m < call.output_count; ++m) {
    if (misalignment(m) != misalignment(0)) return none;
  }
  const std::size_t bytes = (kLine - misalignment(0)) % kLine;
  return bytes % element == 0 ? bytes : none;
}

// `bytes` fewer than a vector's, `offset` bytes into every buffer. This and combine_rest() are kept
// out of line because all shapes of a call share them.
template <class Format, class Op>
[[gnu::noinline]] void combine_remainder(const KernelCall& call, std::size_t offset,
                                         std::size_t bytes) {
  combine_tile<Format, Op, 1, Nans::kTested, Reach::kRemainder>(call, offset, bytes);
}

// What is left of the call, less than a tile, after `done` bytes.
template <class Format, class Op>
[[gnu::noinline]] void combine_rest(const KernelCall& call, std::size_t done) {
  const std::size_t bytes = call.count * Format::kSize;
  for (; done + kVectorBytes <= bytes; done += kVectorBytes) {
    combine_tile<Format, Op, 1, Nans::kTested, Reach::kTile>(call, done);
  }
  if (done < bytes) combine_remainder<Format, Op>(call, done, bytes - done);
}

template <class Format>
constexpr std::size_t kTileBytes = kVectorBytes * 8 / Format::kVectors;  // eight vectors of numbers

// The whole tiles of [done, end); says how far they reach.
template <class Format, class Op, Reach kReach, Asking kAsking>
inline __attribute__((always_inline)) std::size_t combine_tiles(const KernelCall& call,
                                                                std::size_t done, std::size_t end) {
  constexpr std::size_t kTile = kTileBytes<Format>;
  const std::size_t bytes = call.count * Format::kSize;
  const std::size_t ahead = distance_asked(kAsking, bytes);
  for (; done + kTile <= end; done += kTile) {
    ask_for_tile<kTile, kAsking>(call, done + ahead, bytes);
    combine_tile<Format, Op, kTile / kVectorBytes, kNansOfTiles, kReach>(call, done);
  }
  return done;
}

// The whole tiles of the call from `done` on.
template <class Format, class Op, int kOutputs, Asking kAsking>
inline __attribute__((always_inline)) std::size_t combine_all_tiles(const KernelCall& call,
                                                                    std::size_t done) {
  constexpr std::size_t kTile = kTileBytes<Format>;
  const std::size_t bytes = call.count * Format::kSize;
  const DefaultNans nans;
  if constexpr (kAsking == Asking::kAdd) {
    const std::size_t end = done + distance_asked(kAsking, bytes);
    for (std::size_t first = done; first < end; first += kTile) {
      ask_for_tile<kTile, kAsking>(call, first, bytes);
    }
  }
  if constexpr (Format::kKeepsVectorUnitsBusy && kOutputs > 1) {
    constexpr std::size_t kBetween = kTilesBetween * kTile;
    if (done + kBetween <= bytes) {
      done = combine_tiles<Format, Op, Reach::kTile, kAsking>(call, done, done + kBetween);
      done = combine_tiles<Format, Op, Reach::kFirstOutput, kAsking>(call, done, bytes);
      copy_results<kBetween>(call, done - kBetween);
    }
  }
  return combine_tiles<Format, Op, Reach::kTile, kAsking>(call, done, bytes);
}

// The whole call. kInputs and kOutputs are 0 where the compiler is not to know how many there are.
template <class Format, class Op, int kInputs, int kOutputs>
void combine_all(const KernelCall& original) {
  const std::byte* inputs[kInputs != 0 ? kInputs : 1];
  std::byte* outputs[kOutputs != 0 ? kOutputs : 1];
  for (int n = 0; n < kInputs; ++n) inputs[n] = original.inputs[n];
  for (int m = 0; m < kOutputs; ++m) outputs[m] = original.outputs[m];
  KernelCall call = original;
  if constexpr (kInputs != 0) call.inputs = inputs, call.input_count = kInputs;
  if constexpr (kOutputs != 0) call.outputs = outputs, call.output_count = kOutputs;
  constexpr std::size_t kTile = kTileBytes<Format>;
  const std::size_t bytes = call.count * Format::kSize;
  std::size_t done = 0;
#if defined(__x86_64__)
  const std::size_t head = call.stream ? bytes_to_line(call, Format::kSize, bytes) : bytes;
  if (head < bytes) {
    while (done < head) {
      const std::size_t here =
          head - done < kVectorBytes ? head - done : kVectorBytes - Format::kSize;
      combine_remainder<Format, Op>(original, done, here);
      done += here;
    }
    for (; done + kTile <= bytes; done += kTile) {
      combine_tile<Format, Op, kTile / kVectorBytes, kNansOfTiles, Reach::kStreamedTile>(call,
                                                                                         done);
    }
    _mm_sfence();
  }
#endif
  if (done + kTile <= bytes) {
    switch (asking_for(call, bytes, Format::kVectors > 1)) {
      case Asking::kNone:
        done = combine_all_tiles<Format, Op, kOutputs, Asking::kNone>(call, done);
        break;
      case Asking::kPrefetch:
        done = combine_all_tiles<Format, Op, kOutputs, Asking::kPrefetch>(call, done);
        break;
      case Asking::kAdd:
        if constexpr (kCanAdd) {
          done = combine_all_tiles<Format, Op, kOutputs, Asking::kAdd>(call, done);
        }
        break;
    }
  }
  if (done < bytes) combine_rest<Format, Op>(original, done);
}

// Pointers kept in registers matter where the data is in cache; sums of floats in the commonest
// shapes of an all-reduce and of a reduction into one place get them.
template <class Format, class Op>
void combine_shape(const KernelCall& call) {
  if constexpr (std::is_floating_point_v<typename Format::Lane>) {
    const auto is = [&](std::size_t inputs, std::size_t outputs) {
      return call.input_count == inputs && call.output_count == outputs;
    };
    if (is(2, 1)) return combine_all<Format, Op, 2, 1>(call);
    if (is(2, 2)) return combine_all<Format, Op, 2, 2>(call);
    if (is(3, 1)) return combine_all<Format, Op, 3, 1>(call);
    if (is(3, 3)) return combine_all<Format, Op, 3, 3>(call);
    if (is(4, 1)) return combine_all<Format, Op, 4, 1>(call);
    if (is(4, 4)) return combine_all<Format, Op, 4, 4>(call);
  }
  combine_all<Format, Op, 0, 0>(call);
}

template <class Format>
void combine_format(const KernelCall& call) {
  switch (call.op) {
    case ReduceOp::kProd:
      return combine_all<Format, Prod, 0, 0>(call);
    case ReduceOp::kMin:
      return combine_all<Format, Min, 0, 0>(call);
    case ReduceOp::kMax:
      return combine_all<Format, Max, 0, 0>(call);
    case ReduceOp::kMean:
      return combine_shape<Format, Mean>(call);
    default:
      return combine_shape<Format, Sum>(call);
  }
}

void combine_vectors(const KernelCall& call) {
  switch (call.dtype) {
    case DType::kF32:
      return combine_format<Native<float>>(call);
    case DType::kF64:
      return combine_format<Native<double>>(call);
    case DType::kF16:
      return combine_format<F16>(call);
    case DType::kBF16:
      return combine_format<Bf16>(call);
    case DType::kI8:
      return combine_format<Native<std::int8_t>>(call);
    case DType::kU8:
      return combine_format<Native<std::uint8_t>>(call);
    case DType::kI32:
      return combine_format<Native<std::int32_t>>(call);
    case DType::kI64:
      return combine_format<Native<std::int64_t>>(call);
  }
}

}  // namespace

const ReduceKernels reduce_kernels = {combine_vectors};

}  // namespace lockstep::reduce::LOCKSTEP_ISA
