#include <fmt/format.h>

#include "lockstep/bench/ops/descriptions.h"
#include "lockstep/bench/ops/fields.h"

namespace lockstep::bench {
namespace {

struct EmbeddingSizes {
  std::int64_t batch, sequence, width, vocabulary;
  bool positions = true;
  bool types = false;
  double dropout = 0;
  std::int64_t first_token = 0;
  std::int64_t shard = 0;  // rows of the tokens' table from first_token on; 0: all

  static constexpr std::int64_t kTypes = 2;
  std::int64_t table_rows() const { return shard > 0 ? shard : vocabulary; }
  std::int64_t whole() const { return shard > 0 ? vocabulary : 0; }
  std::int64_t rows() const { return batch * sequence; }
  std::int64_t places() const { return sequence + 3; }  // more than are used
  ops::Dropout dropping() const {
    return {.probability = dropout, .seed = 21, .step = 2, .first = 400};
  }
  std::string text() const {
    return fmt::format("{} x {} tokens of {}{}, {} wide{}{}{}", batch, sequence, vocabulary,
                       shard > 0 ? fmt::format(", {} from {} on", shard, first_token) : "", width,
                       positions ? ", positions" : "", types ? ", types" : "",
                       dropout > 0 ? fmt::format(", p {}", dropout) : "");
  }
};

std::vector<EmbeddingSizes> odd_embeddings() {
  return {{1, 1, 1, 1},
          {1, 3, 17, 5},
          {2, 17, 3, 7, true, true},
          {0, 5, 4, 3},
          {3, 31, 65, 11, false, false},
          {3, 7, 67, 3, true, true, 0.1},
          {2, 13, 3, 50257, true, false, 0.5}};
}

// A shard in the middle, one row, the last rows; and one that no token may hit.
std::vector<EmbeddingSizes> embedding_shards() {
  const auto shard = [](EmbeddingSizes sizes, std::int64_t first, std::int64_t rows) {
    sizes.first_token = first;
    sizes.shard = rows;
    return sizes;
  };
  return {shard({1, 1, 1, 2, false}, 1, 1),
          shard({2, 17, 3, 30, true, true}, 10, 11),
          shard({3, 31, 65, 11, false, false}, 0, 4),
          shard({0, 5, 4, 9}, 3, 3),
          shard({3, 7, 64, 12, true, true, 0.1}, 8, 4),
          shard({2, 13, 8, 50257, true, false, 0.5}, 40000, 17)};
}

std::vector<OpField> index_fields(const EmbeddingSizes& sizes) {
  std::vector<OpField> fields = {
      input("tokens", DType::kI32, {sizes.rows()}, indices(sizes.vocabulary))};
  if (sizes.types) {
    fields.push_back(input("types", DType::kI32, {sizes.rows()}, indices(EmbeddingSizes::kTypes)));
  }
  return fields;
}

struct Table {
  std::string name;
  Shape shape;
};

std::vector<Table> tables(const EmbeddingSizes& sizes, const std::string& prefix) {
  std::vector<Table> all = {{prefix + "tokens_table", {sizes.table_rows(), sizes.width}}};
  if (sizes.positions) all.push_back({prefix + "positions_table", {sizes.places(), sizes.width}});
  if (sizes.types) all.push_back({prefix + "types_table", {EmbeddingSizes::kTypes, sizes.width}});
  return all;
}

OpCase embedding_case(DType dtype, const EmbeddingSizes& sizes) {
  OpCase one;
  one.name = sizes.text();
  one.fields = index_fields(sizes);
  Gradient gradient{.outputs = {"y"}};
  for (const Table& table : tables(sizes, "")) {
    one.fields.push_back(input(table.name, dtype, table.shape, normal(), Freedom::kFirst));
    gradient.inputs.push_back(table.name);
  }
  const Shape rows{sizes.rows(), sizes.width};
  one.fields.push_back(output("y", dtype, rows, {.relative = 4, .noise = 8}));
  one.run = [sizes](Ops& ops, const Tensors& t) {
    ops.run(ops::Embedding{.tokens = t["tokens"],
                           .types = t["types"],
                           .sequence = sizes.sequence,
                           .tokens_table = t["tokens_table"],
                           .positions_table = t["positions_table"],
                           .types_table = t["types_table"],
                           .dropout = sizes.dropping(),
                           .y = t["y"],
                           .first_token = sizes.first_token,
                           .vocabulary = sizes.whole()});
  };
  gradient.backward = [sizes](Ops& ops, const Tensors& t) {
    ops.run(ops::EmbeddingBackward{.tokens = t["tokens"],
                                   .types = t["types"],
                                   .sequence = sizes.sequence,
                                   .dy = t["dy"],
                                   .dropout = sizes.dropping(),
                                   .dtokens_table = t["dtokens_table"],
                                   .dpositions_table = t["dpositions_table"],
                                   .dtypes_table = t["dtypes_table"],
                                   .first_token = sizes.first_token,
                                   .vocabulary = sizes.whole()});
  };
  if (sizes.vocabulary < 1000) one.gradient = gradient;
  // A row of y, of the tokens' table, and the positions once.
  const auto row = static_cast<double>(static_cast<std::size_t>(sizes.width) * size_of(dtype));
  one.bytes_moved = row * static_cast<double>(2 * sizes.rows() + sizes.sequence);
  return one;
}

OpCase embedding_backward_case(DType dtype, const EmbeddingSizes& sizes, DType gradient) {
  OpCase one;
  one.name = fmt::format("{}, gradients {}", sizes.text(), name(gradient));
  one.fields = index_fields(sizes);
  const Shape rows{sizes.rows(), sizes.width};
  one.fields.push_back(sizes.dropout > 0 ? updated("dy", dtype, rows, normal(), {.relative = 4})
                                         : input("dy", dtype, rows, normal()));
  // All rows may be of one entry. Dropped gradients may be added before or after they were rounded.
  const double root = std::sqrt(static_cast<double>(sizes.rows()));
  const double rounding = sizes.dropout > 0 ? 8 * unit(dtype) / unit(DType::kF32) : 0;
  const Tolerance tolerance{.noise = (8 + rounding) * (1 + root)};
  for (const Table& table : tables(sizes, "d")) {
    one.fields.push_back(
        updated(table.name, gradient, table.shape, normal(), tolerance, Freedom::kFirst));
  }
  one.run = [sizes](Ops& ops, const Tensors& t) {
    ops.run(ops::EmbeddingBackward{.tokens = t["tokens"],
                                   .types = t["types"],
                                   .sequence = sizes.sequence,
                                   .dy = t["dy"],
                                   .dropout = sizes.dropping(),
                                   .dtokens_table = t["dtokens_table"],
                                   .dpositions_table = t["dpositions_table"],
                                   .dtypes_table = t["dtypes_table"],
                                   .first_token = sizes.first_token,
                                   .vocabulary = sizes.whole()});
  };
  one.scratch = [sizes](const Ops& ops) {
    return ops.embedding_scratch(sizes.rows(), sizes.width, sizes.table_rows());
  };
  const auto width = static_cast<double>(sizes.width);
  one.bytes_moved =
      width * static_cast<double>(sizes.rows()) *
          static_cast<double>(size_of(dtype) + 2 * size_of(gradient)) +
      2 * width * static_cast<double>(sizes.sequence) * static_cast<double>(size_of(gradient));
  return one;
}

std::vector<OpCase> embedding_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const EmbeddingSizes& sizes : odd_embeddings())
    cases.push_back(embedding_case(dtype, sizes));
  return cases;
}

std::vector<OpCase> embedding_backward_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const EmbeddingSizes& sizes : odd_embeddings()) {
    cases.push_back(embedding_backward_case(dtype, sizes, DType::kF32));
    if (is_narrow(dtype)) cases.push_back(embedding_backward_case(dtype, sizes, dtype));
  }
  return cases;
}

std::vector<OpCase> embedding_shard_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const EmbeddingSizes& sizes : embedding_shards()) {
    cases.push_back(embedding_case(dtype, sizes));
  }
  return cases;
}

std::vector<OpCase> embedding_backward_shard_cases(DType dtype) {
  std::vector<OpCase> cases;
  for (const EmbeddingSizes& sizes : embedding_shards()) {
    cases.push_back(embedding_backward_case(dtype, sizes, DType::kF32));
    if (is_narrow(dtype)) cases.push_back(embedding_backward_case(dtype, sizes, dtype));
  }
  return cases;
}

constexpr EmbeddingSizes kTypicalEmbedding{Typical::kBatch, Typical::kSequence, Typical::kWidth,
                                           Typical::kVocabulary};

OpCase embedding_typical(DType dtype) { return embedding_case(dtype, kTypicalEmbedding); }
OpCase embedding_backward_typical(DType dtype) {
  return embedding_backward_case(dtype, kTypicalEmbedding, DType::kF32);
}

constexpr EmbeddingSizes kLargeEmbeddings[] = {
    {Large::kBatch, Typical::kSequence, Typical::kWidth, Large::kPaddedVocabulary},
    {Large::kLlamaBatch, Large::kLlamaSequence, Large::kLlamaWidth, Large::kLlamaVocabulary,
     false}};

std::vector<OpCase> embedding_large(DType dtype) {
  std::vector<OpCase> cases;
  for (const EmbeddingSizes& sizes : kLargeEmbeddings) {
    cases.push_back(embedding_case(dtype, sizes));
  }
  return cases;
}
std::vector<OpCase> embedding_backward_large(DType dtype) {
  std::vector<OpCase> cases;
  for (const EmbeddingSizes& sizes : kLargeEmbeddings) {
    cases.push_back(embedding_backward_case(dtype, sizes, DType::kF32));
  }
  return cases;
}

// One of four ranks.
EmbeddingSizes quarter(EmbeddingSizes sizes) {
  sizes.shard = sizes.vocabulary / 4;
  sizes.first_token = sizes.shard;
  return sizes;
}

OpCase embedding_shard_typical(DType dtype) {
  return embedding_case(dtype, quarter(kTypicalEmbedding));
}
OpCase embedding_backward_shard_typical(DType dtype) {
  return embedding_backward_case(dtype, quarter(kTypicalEmbedding), DType::kF32);
}
std::vector<OpCase> embedding_shard_large(DType dtype) {
  return {embedding_case(dtype, quarter(kLargeEmbeddings[1]))};
}
std::vector<OpCase> embedding_backward_shard_large(DType dtype) {
  return {embedding_backward_case(dtype, quarter(kLargeEmbeddings[1]), DType::kF32)};
}

}  // namespace

std::vector<OpDescription> describe_embedding() {
  return {{"embedding", embedding_cases, embedding_typical, {embedding_large}},
          {"embedding_backward",
           embedding_backward_cases,
           embedding_backward_typical,
           {embedding_backward_large}},
          {"embedding_shard",
           embedding_shard_cases,
           embedding_shard_typical,
           {embedding_shard_large},
           "embedding"},
          {"embedding_backward_shard",
           embedding_backward_shard_cases,
           embedding_backward_shard_typical,
           {embedding_backward_shard_large},
           "embedding_backward"}};
}

}  // namespace lockstep::bench
