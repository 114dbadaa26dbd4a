// RMS norms of every head of queries and of keys, before positions turn them (Qwen3). All query
// heads have one gain of the width of a head, and all key heads another.
//
// The ranks of a tensor group have some heads each, so the gradients of gains are summed over them.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/nn/parts/attention_options.h"
#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

class QueryKeyNormPart : public Part {
 public:
  QueryKeyNormPart(Place& next, const std::string& name, const AttentionOptions& options)
      : Part(next, name, 2, kTensors), options_(options) {}

  void declare(Declaration& declaration, std::int64_t rows) const;

  // In place, of rows that hold queries, then keys. Keeps what they were in training.
  void forward(const Pass& pass, const Tensor& packed) const;
  // In place, of queries or of keys that lie elsewhere; in inference.
  void forward_queries(const Pass& pass, const ops::Heads& queries) const;
  void forward_keys(const Pass& pass, const ops::Heads& keys) const;
  // In place, of gradients.
  void backward(const Pass& pass, const Tensor& dpacked) const;

 private:
  // The order of the spec.
  enum Parameter : std::size_t { kQueryGain, kKeyGain };
  enum Saved : std::size_t { kBefore, kQueryRstd, kKeyRstd, kOwnGradients, kTensors };

  struct Normed {
    std::int64_t heads;
    std::int64_t first;  // column
    Parameter gain;
    Saved rstd;
  };
  Normed queries() const { return {options_.own_heads(), 0, kQueryGain, kQueryRstd}; }
  Normed keys() const {
    return {options_.own_kv_heads(), options_.query_width(), kKeyGain, kKeyRstd};
  }
  void forward(const Pass& pass, const Normed& side, const ops::Heads& x) const;
  void backward(const Pass& pass, const Normed& side, const Tensor& dpacked) const;

  AttentionOptions options_;
};

}  // namespace lockstep::nn
