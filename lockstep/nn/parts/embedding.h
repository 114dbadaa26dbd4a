// Tables that turn token numbers into rows: of tokens, of learned positions, of token types.
//
// The ranks of a tensor group divide the table of tokens by rows (nn/tensor_shard.h). Each looks up
// its own tokens, the first one adds positions and types, and the sum over the ranks is the result.
//
// A rank of a context group reads the positions that its tokens have in their sequences.
#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/nn/generate/decoding.h"
#include "lockstep/nn/parts/declaration.h"
#include "lockstep/nn/parts/part.h"

namespace lockstep::nn {

struct EmbeddingOptions {
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  // 0: none are learned
  std::int64_t types = 0;      // 0: none
  std::int64_t hidden = 0;
  double stddev = 0.02;  // of all tables at first
  double dropout = 0;
  std::string tied_to;  // the full name of a table of tokens that is used instead of an own one
  Side side = Side::kTarget;
  TensorGroup tensor = {};           // divides the vocabulary
  std::int64_t counted_experts = 0;  // nn/parts/expert_counts.h
  double scale = 1;                  // of the rows, rounded to the compute type (Gemma)
};

class EmbeddingPart : public Part {
 public:
  // `block` is the name of the block, for errors.
  EmbeddingPart(Place& next, std::string name, std::string block, const EmbeddingOptions& options)
      : Part(next, std::move(name), 3,
             options.tensor.divides_tokens ? std::size_t{kWorkspaces} : 0),
        block_(std::move(block)),
        options_(options) {}

  // Throws Error(kInvalidArgument) where a sequence is longer than there are positions.
  void declare(Declaration& declaration) const;
  void check_positions(std::int64_t positions) const;  // the same for a longer text

  void forward(const Pass& pass, const Tensor& y) const;
  void decode(const DecodePass& at, const Tensor& y) const;
  void backward(const Pass& pass, const Tensor& dy) const;  // dy may be overwritten
  // What backward() of `dy` skipped with pass.separate_sparse_gradient.
  std::optional<SparseGradient> sparse_gradient(const Pass& pass, const Tensor& dy) const;

 private:
  // The order of the spec.
  enum Parameter : std::size_t { kTokens, kPositions, kTypes };
  // Of all tokens, where ranks divide them.
  enum AllTokens : std::size_t { kInForward, kInBackward, kWorkspaces };

  bool is_divided() const { return options_.tensor.size > 1; }
  Extent own_tokens() const { return share_of(options_.vocabulary, options_.tensor); }
  Tensor tokens(const Pass& pass) const;
  Tensor types(const Pass& pass) const;
  ops::Dropout dropout(const Pass& pass) const;
  // Rows whose positions follow each other, as often as there are `sequence` of them.
  struct Rows {
    Extent rows;
    std::int64_t sequence = 0;
    std::int64_t position = 0;  // of the first
  };
  std::vector<Rows> rows_by_position(const Setup& setup) const;
  // The rows of a table of positions, or of its gradient, that these rows read.
  static Tensor positions_of(const Pass& pass, const Tensor& table, const Rows& part);
  void look_up(const Pass& pass, const ops::Embedding& whole) const;
  // Of what this rank has of the stream, or of its gradient.
  void scale(const Pass& pass, const Tensor& rows) const;
  void drop(const Pass& pass, const Tensor& rows) const;

  std::string block_;
  EmbeddingOptions options_;
};

}  // namespace lockstep::nn
