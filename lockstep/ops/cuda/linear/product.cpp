#include "lockstep/ops/cuda/linear/product.h"

#include <fmt/format.h>

#include <string_view>

namespace lockstep::cuda {
namespace {

std::string_view word(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "plain";
    case Epilogue::kBias:
      return "bias";
    case Epilogue::kGeluSlopes:
      return "gelu-slopes";
  }
  return "?";
}

unsigned number_of(const std::optional<Float8>& format) {
  return format ? 1 + static_cast<unsigned>(*format) : 0;
}

std::string text_of_inputs(const Product& product) {
  if (!product.format_a) return std::string(name(product.input));
  const auto word_of = [](const std::optional<Float8>& format) {
    return format == Float8::kE4M3 ? "e4m3" : "e5m2";
  };
  return fmt::format("{}.{}{}", word_of(product.format_a), word_of(product.format_b),
                     product.fast ? ".fast" : "");
}

}  // namespace

std::size_t ProductHash::operator()(const Product& product) const {
  std::uint64_t hash = 0;
  const auto mix = [&hash](std::uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
    hash ^= hash >> 29;
  };
  for (const std::int64_t extent :
       {product.m, product.n, product.k, product.lda, product.ldb, product.ldd}) {
    mix(static_cast<std::uint64_t>(extent));
  }
  std::uint64_t rest = 0;
  for (const unsigned part :
       {unsigned{product.transpose_a}, unsigned{product.transpose_b}, unsigned{product.adds},
        static_cast<unsigned>(product.epilogue), static_cast<unsigned>(product.input),
        static_cast<unsigned>(product.output), unsigned{product.align_a}, unsigned{product.align_b},
        unsigned{product.align_c}, unsigned{product.align_d}}) {
    rest = rest * 32 + part;
  }
  mix(rest);
  mix(number_of(product.format_a) * 8 + number_of(product.format_b) * 2 + unsigned{product.fast});
  return static_cast<std::size_t>(hash);
}

std::string text(const Product& product) {
  return fmt::format("{}-{} {}{} m{} n{} k{} lda{} ldb{} ldd{} {}{} align {}.{}.{}.{}",
                     text_of_inputs(product), name(product.output), product.transpose_a ? 'T' : 'N',
                     product.transpose_b ? 'T' : 'N', product.m, product.n, product.k, product.lda,
                     product.ldb, product.ldd, word(product.epilogue), product.adds ? "+c" : "",
                     product.align_a, product.align_b, product.align_c, product.align_d);
}

}  // namespace lockstep::cuda
