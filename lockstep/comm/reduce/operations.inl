// What is done with vectors of numbers, and how all kernel sets come to the same bits. Part of
// kernels.inl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "lockstep/base/simd/vector.inl"

namespace lockstep::reduce::LOCKSTEP_ISA {
namespace {

using namespace simd;

// Unsigned numbers of as many bits: arithmetic on them wraps around.
template <std::size_t kBytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using type = std::uint8_t;
};
template <>
struct UnsignedOf<2> {
  using type = std::uint16_t;
};
template <>
struct UnsignedOf<4> {
  using type = std::uint32_t;
};
template <>
struct UnsignedOf<8> {
  using type = std::uint64_t;
};
template <class T>
using Unsigned = Vector<typename UnsignedOf<sizeof(T)>::type>;

// How NaNs become the one that all kernel sets store (left alone, which of two NaNs an addition
// passes on would be the compiler's choice): by a test of every result; by a test of a whole tile,
// after which the rare one with NaNs is done again with a test of every result; or by the CPU.
enum class Nans { kTested, kTestedByTile, kByCpu };

template <Nans kNans, class T>
Vector<T> canonical(Vector<T> x) {
  if constexpr (std::is_floating_point_v<T> && kNans == Nans::kTested) {
    constexpr T nan = sizeof(T) == 4 ? __builtin_nanf("") : __builtin_nan("");
    return x == x ? x : Vector<T>{} + nan;
  } else {
    return x;
  }
}

#if defined(__aarch64__)
// While it lives, every operation that gives a NaN gives the default one. Costs about as much as
// testing a few hundred results.
class DefaultNans {
 public:
  DefaultNans() {
    asm volatile("mrs %0, fpcr" : "=r"(before_));
    asm volatile("msr fpcr, %0" ::"r"(before_ | std::uint64_t{1} << 25) : "memory");
  }
  ~DefaultNans() { asm volatile("msr fpcr, %0" ::"r"(before_) : "memory"); }

 private:
  std::uint64_t before_;
};
constexpr Nans kNansOfTiles = Nans::kByCpu;
#else
struct DefaultNans {
  ~DefaultNans() {}
};
constexpr Nans kNansOfTiles = Nans::kTestedByTile;
#endif

// Whether a NaN is among the vectors of `kPacks` packs. The packs are many and even in number.
template <class Pack, int kPacks>
bool tile_has_nan([[maybe_unused]] const Pack (&tile)[kPacks]) {
  bool found = false;
#if !defined(__aarch64__)
  constexpr int kVectors = sizeof(Pack) / kVectorBytes;
  static_assert(kPacks * kVectors % 2 == 0);
#pragma GCC unroll 16
  for (int v = 0; v < kPacks * kVectors; v += 2) {
    found |= has_nan(tile[v / kVectors].part[v % kVectors],
                     tile[(v + 1) / kVectors].part[(v + 1) % kVectors]);
  }
#endif
  return found;
}

struct Sum {
  static constexpr bool kAdds = true;
  static constexpr bool kDivides = false;
  template <class T>
  static Vector<T> apply(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a + b;
    } else {
      return (Vector<T>)((Unsigned<T>)a + (Unsigned<T>)b);
    }
  }
};

struct Mean : Sum {
  static constexpr bool kDivides = true;
};

struct Prod {
  static constexpr bool kAdds = false;
  static constexpr bool kDivides = false;
  template <class T>
  static Vector<T> apply(Vector<T> a, Vector<T> b) {
    if constexpr (std::is_floating_point_v<T>) {
      return a * b;
    } else {
      return (Vector<T>)((Unsigned<T>)a * (Unsigned<T>)b);
    }
  }
};

// Where the comparison is false the second operand comes out, so both orders differ only for
// equal zeros and for NaNs. Or-ing them keeps a minus sign and a NaN; and-ing them keeps a plus
// sign, and loses a NaN.
struct Min {
  static constexpr bool kAdds = false;
  static constexpr bool kDivides = false;
  template <class T>
  static Vector<T> apply(Vector<T> a, Vector<T> b) {
    if constexpr (!std::is_floating_point_v<T>) {
      return a < b ? a : b;
    } else {
#if defined(__aarch64__)
      if constexpr (sizeof(T) == 4) {
        return vminq_f32(a, b);
      } else {
        return vminq_f64(a, b);
      }
#else
      const Vector<T> ab = a < b ? a : b;
      const Vector<T> ba = b < a ? b : a;
      return (Vector<T>)((Unsigned<T>)ab | (Unsigned<T>)ba);
#endif
    }
  }
};

struct Max {
  static constexpr bool kAdds = false;
  static constexpr bool kDivides = false;
  template <class T>
  static Vector<T> apply(Vector<T> a, Vector<T> b) {
    if constexpr (!std::is_floating_point_v<T>) {
      return a < b ? b : a;
    } else {
#if defined(__aarch64__)
      if constexpr (sizeof(T) == 4) {
        return vmaxq_f32(a, b);
      } else {
        return vmaxq_f64(a, b);
      }
#else
      const Vector<T> ab = a > b ? a : b;
      const Vector<T> ba = b > a ? b : a;
      const Vector<T> larger = (Vector<T>)((Unsigned<T>)ab & (Unsigned<T>)ba);
      const Vector<T> sum = a + b;
      return (a == a) & (b == b) ? larger : sum;
#endif
    }
  }
};

template <class T>
Vector<T> quotient(Vector<T> x, int divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    // Times the inverse of a power of two rounds alike and takes a fraction of the time.
    if ((divisor & (divisor - 1)) == 0) return x * (T(1) / static_cast<T>(divisor));
    return x / static_cast<T>(divisor);
  } else {
#pragma GCC unroll 1
    for (std::size_t i = 0; i < kVectorBytes / sizeof(T); ++i) {
      x[i] = static_cast<T>(static_cast<std::int64_t>(x[i]) / divisor);
    }
    return x;
  }
}

}  // namespace
}  // namespace lockstep::reduce::LOCKSTEP_ISA
