#include "lockstep/bench/train/products.h"

#include <algorithm>

#include "lockstep/nn/parts/classifier.h"
#include "lockstep/train/observe/peak.h"

namespace lockstep::bench {
namespace {

std::int64_t to_signed(plan::Count count) { return static_cast<std::int64_t>(count); }

}  // namespace

std::vector<Product> products_of(const plan::ModelShape& shape, const nn::Setup& setup) {
  const std::int64_t tokens = setup.shape.tokens();
  const std::int64_t hidden = to_signed(shape.hidden);
  const std::int64_t wide = to_signed(shape.feed_forward);
  const std::int64_t vocabulary = to_signed(shape.vocabulary);
  const bool gated = shape.parts().gated;
  const auto layers = static_cast<double>(shape.all_layers());
  const auto across = static_cast<double>(shape.decoder_layers);
  std::vector<Product> products;
  const auto add = [&](std::int64_t some_rows, std::int64_t in, std::int64_t out, double count) {
    products.push_back({.shape = {.rows = some_rows,
                                  .in = in,
                                  .out = out,
                                  .dtype = setup.dtype,
                                  .gradient = setup.gradient},
                        .count = count});
  };
  const std::int64_t queries = to_signed(shape.query_width());
  add(tokens, hidden, queries + 2 * to_signed(shape.kv_width()), layers);
  add(tokens, queries, hidden, layers);
  if (shape.head == plan::Head::kMaskedLanguage) add(tokens, hidden, hidden, 1);
  if (across > 0) {  // a decoder's attention to the encoder: queries, keys and values, projection
    add(tokens, hidden, queries, across);
    add(tokens, queries, hidden, across);
    add(setup.shape.source_tokens(), hidden, 2 * queries, across);
  }
  // Experts with equally many tokens each.
  const std::int64_t experts = std::max<std::int64_t>(1, to_signed(shape.experts));
  const std::int64_t routed =
      shape.has_experts() ? (tokens * to_signed(shape.experts_per_token) + experts - 1) / experts
                          : tokens;
  if (shape.has_experts()) add(tokens, hidden, experts, layers);
  add(routed, hidden, gated ? 2 * wide : wide, layers * static_cast<double>(experts));
  add(routed, wide, hidden, layers * static_cast<double>(experts));
  const std::int64_t chunk = nn::rows_per_chunk(tokens, vocabulary, setup.dtype, nn::kLogitBytes);
  add(chunk, hidden, vocabulary, static_cast<double>(tokens) / static_cast<double>(chunk));
  return products;
}

double measure_products(const std::vector<Product>& products, Ops& ops) {
  double seconds = 0;
  double flops = 0;
  for (const Product& product : products) {
    const train::LinearSeconds passes = train::time_linear(product.shape, ops);
    seconds += product.count * (passes.forward + passes.backward_input + passes.backward_weight);
    flops += product.count * 3 * train::linear_flops(product.shape);
  }
  return flops / seconds;
}

}  // namespace lockstep::bench
