// More cases of attention than the descriptions have.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "lockstep/bench/ops/description.h"

namespace lockstep::bench {

struct AttentionOptions {
  ops::AttentionShape shape;
  bool mask = false;
  double dropout = 0;
  // Queries, keys and values in the columns of one tensor, with unused columns before the keys;
  // otherwise separate tensors.
  bool packed = false;
  bool probabilities = false;
  std::int64_t gap = 3;
  float softcap = 0;  // not together with shape.distances

  float scale() const { return 1 / std::sqrt(static_cast<float>(shape.head_size)); }
  ops::Dropout dropping() const {
    return {.probability = dropout, .seed = 77, .step = 1, .first = 1 << 20};
  }
  std::int64_t query_columns() const { return shape.heads * shape.head_size; }
  std::int64_t key_columns() const { return shape.kv_heads * shape.head_size; }
  std::int64_t first_key() const { return query_columns() + gap; }
  std::int64_t first_value() const { return first_key() + key_columns(); }
  Shape query_rows() const { return {shape.batch * shape.queries, query_columns()}; }

  std::string text() const {
    return fmt::format(
        "{} x {} queries, {} keys, {}/{} heads of {}{}{}{}{}{}{}{}{}", shape.batch, shape.queries,
        shape.keys, shape.heads, shape.kv_heads, shape.head_size, shape.causal ? ", causal" : "",
        shape.window > 0 ? fmt::format(", window {}", shape.window) : "", mask ? ", mask" : "",
        packed ? ", packed" : "", probabilities ? ", probabilities" : "",
        dropout > 0 ? fmt::format(", p {}", dropout) : "",
        softcap > 0 ? fmt::format(", capped at {}", softcap) : "",
        shape.distances > 0 ? fmt::format(", {} distances", shape.distances) : "");
  }
};

OpCase attention_case(const AttentionOptions& options);
OpCase attention_backward_case(const AttentionOptions& options);

}  // namespace lockstep::bench
