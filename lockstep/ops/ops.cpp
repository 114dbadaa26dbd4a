#include "lockstep/ops/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/ops/check.h"
#include "lockstep/ops/element.h"
#include "lockstep/ops/sampler.h"
#include "lockstep/tensor/buffer.h"

namespace lockstep {
namespace ops {

double sum_of_runs(std::span<const double> runs) {
  double sum = 0;
  for (std::size_t first = 0; first < runs.size(); first += kSpanRuns) {
    double span = 0;
    for (const double run : runs.subspan(first, std::min(kSpanRuns, runs.size() - first))) {
      span += run;
    }
    sum += span;
  }
  return sum;
}

std::vector<std::int64_t> adam_table(std::span<const AdamSegment> segments) {
  std::vector<std::int64_t> table;
  std::int64_t end = 0;
  std::int64_t tiles = 0;
  for (const AdamSegment& segment : segments) {
    if (segment.first < end || segment.elements < 0) {
      fail(ErrorCode::kInvalidArgument,
           "a segment of {} elements from {} on follows one that ends at {}; segments ascend and "
           "do not overlap",
           segment.elements, segment.first, end);
    }
    table.insert(table.end(), {segment.first, segment.elements, tiles, segment.decays ? 1 : 0});
    end = segment.first + segment.elements;
    if (segment.elements > 0) {
      tiles += (segment.first % kAdamPack + segment.elements + kAdamTile - 1) / kAdamTile;
    }
  }
  table.insert(table.end(), {end, 0, tiles, 0});
  return table;
}

}  // namespace ops

namespace {

Tensor part_of(const Tensor& flat, std::int64_t first, std::int64_t elements) {
  if (!ops::is_given(flat)) return {};
  return flat.reshaped({static_cast<std::int64_t>(flat.elements())}).slice(first, elements);
}

}  // namespace

void Ops::run(const ops::AdamSegments& call) {
  ops::check(call);
  const auto table = call.table.as<const std::int64_t>();
  for (std::size_t row = 0; row + 4 < table.size(); row += 4) {
    const std::int64_t first = table[row];
    const std::int64_t elements = table[row + 1];
    ops::Adam adam = call.adam;
    adam.master = part_of(adam.master, first, elements);
    adam.gradient = part_of(adam.gradient, first, elements);
    adam.first_moment = part_of(adam.first_moment, first, elements);
    adam.second_moment = part_of(adam.second_moment, first, elements);
    adam.parameter = part_of(adam.parameter, first, elements);
    if (table[row + 3] == 0) adam.decay = 0;
    run(adam);
  }
}

void Ops::run(const ops::ChunkedSumOfSquares& call) {
  ops::check(call);
  const auto elements = static_cast<std::int64_t>(call.x.elements());
  for (std::int64_t chunk = 0; chunk * call.chunk_elements < elements; ++chunk) {
    const std::int64_t first = chunk * call.chunk_elements;
    run(ops::SumOfSquares{
        .x = part_of(call.x, first, std::min(call.chunk_elements, elements - first)),
        .result = call.results.slice(chunk, 1)});
  }
}

void Ops::run(const ops::ClipScale& call) {
  ops::check(call);
  double sum = 0;
  for (const double one : call.squares.as<const double>()) sum += one;
  const double loss_scale = call.loss_scale;
  const double norm = std::sqrt(sum) / loss_scale;
  const double clip = call.limit > 0 && norm > call.limit ? call.limit / norm : 1;
  call.norm.as<double>()[0] = norm;
  call.scale.as<double>()[0] =
      std::isfinite(norm) ? clip / loss_scale : std::numeric_limits<double>::quiet_NaN();
}

std::size_t Ops::decode_attention_scratch(const ops::AttentionShape& shape) const {
  ops::AttentionShape one = shape;
  one.batch = 1;
  return scratch(one);
}

// Sequence by sequence: the rows of the token join the cache, which attention then reads.
void Ops::run(const ops::DecodeAttention& call) {
  ops::check(call, {.f64 = true});
  const std::int64_t positions = call.cache.shape()[1];
  const std::int64_t query_columns = call.heads * call.head_size;
  const std::int64_t key_columns = call.kv_heads * call.head_size;
  const DType dtype = call.packed.dtype();
  const DType statistic = dtype == DType::kF64 ? DType::kF64 : DType::kF32;
  ops::check_indices(call.lengths, positions, "decode_attention: lengths");
  const Buffer turned(static_cast<std::size_t>(query_columns) * size_of(dtype));
  const Buffer log_sums(static_cast<std::size_t>(call.heads) * size_of(statistic));
  const Tensor q = turned.tensor(dtype, {1, query_columns});
  const auto lengths = call.lengths.as<const std::int32_t>();
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const auto sequence = static_cast<std::int64_t>(i);
    const std::int64_t length = lengths[i];
    const Tensor row = call.packed.row(sequence);
    const Tensor added = call.cache.row(sequence).slice(length, 1);
    const std::int64_t keys = call.window > 0 ? std::min(call.window, length + 1) : length + 1;
    const Tensor seen = call.cache.row(sequence).slice(length + 1 - keys, keys);
    copy(q, row.slice(0, query_columns));
    copy(added, row.slice(query_columns, 2 * key_columns));
    if (call.rotary) {
      ops::Rotary rotary{.x = {q, 0},
                         .heads = call.heads,
                         .head_size = call.rotary_size > 0 ? call.rotary_size : call.head_size,
                         .stride = call.head_size,
                         .sequence = 1,
                         .first_position = length,
                         .theta = call.theta,
                         .scaling = call.scaling,
                         .slowing = call.slowing,
                         .amplitude = call.amplitude};
      run(rotary);
      rotary.x = {added, 0};
      rotary.heads = call.kv_heads;
      run(rotary);
    }
    run(ops::Attention{.shape = {.batch = 1,
                                 .queries = 1,
                                 .keys = keys,
                                 .heads = call.heads,
                                 .kv_heads = call.kv_heads,
                                 .head_size = call.head_size,
                                 .causal = true,
                                 .dtype = dtype},
                       .scale = call.scale,
                       .softcap = call.softcap,
                       .q = {q, 0},
                       .k = {seen, 0},
                       .v = {seen, key_columns},
                       .key_mask = {},
                       .dropout = {},
                       .out = call.out.slice(sequence, 1),
                       .log_sum = log_sums.tensor(statistic, {1, call.heads, 1}),
                       .probabilities = {}});
  }
}

void Ops::run(const ops::Sample& call) {
  ops::check(call);
  ops::Sampler sampler({.temperature = call.temperature, .top_k = call.top_k, .top_p = call.top_p});
  const auto seeds = call.seeds.as<const std::int64_t>();
  const auto positions = call.positions.as<std::int32_t>();
  const auto tokens = call.tokens.as<std::int32_t>();
  const std::int64_t classes = call.logits.shape()[1];
  std::vector<float> logits(static_cast<std::size_t>(call.choices));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    ops::with_float_type(call.logits.dtype(), [&]<class T>(T) {
      const T* row =
          reinterpret_cast<const T*>(call.logits.data()) + i * static_cast<std::size_t>(classes);
      for (std::size_t c = 0; c < logits.size(); ++c) {
        logits[c] = static_cast<float>(ops::to_double(row[c]));
      }
    });
    tokens[i] = sampler.sample(logits, static_cast<std::uint64_t>(seeds[i]),
                               static_cast<std::uint64_t>(positions[i]));
    ++positions[i];
    if (!ops::is_given(call.lengths)) continue;
    std::int32_t& length = call.lengths.as<std::int32_t>()[i];
    length = static_cast<std::int32_t>(std::min<std::int64_t>(length + 1, call.last_length));
  }
}

void Ops::run(const ops::AddCounts& call) {
  ops::check(call);
  const auto counts = call.counts.as<const std::int32_t>();
  const auto sums = call.sums.as<std::int32_t>();
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += counts[i];
}

void Ops::run(const ops::CountTargets& call) {
  ops::check(call);
  call.count.as<std::int32_t>()[0] = static_cast<std::int32_t>(
      std::ranges::count_if(call.targets.as<const std::int32_t>(),
                            [](std::int32_t target) { return target != ops::kNoTarget; }));
}

void Ops::run(const ops::BalanceExperts& call) {
  ops::check(call);
  const auto counts = call.counts.as<const std::int32_t>();
  double tokens = std::accumulate(counts.begin(), counts.end() - 1, 0.0);
  tokens /= static_cast<double>(call.experts_per_token);
  const double each = call.coefficient * static_cast<double>(counts.back()) *
                      static_cast<double>(call.factor) / std::max(1.0, tokens * tokens);
  const auto balance = call.balance.as<float>();
  for (std::size_t e = 0; e < balance.size(); ++e) {
    balance[e] = static_cast<float>(each * static_cast<double>(counts[e]));
  }
}

std::byte* Ops::scratch_memory(std::size_t needed) const {
  if (scratch_.bytes() < needed) {
    fail(ErrorCode::kInvalidArgument,
         "an operation needs {} bytes of workspace, but has {}; give it more with use_scratch()",
         needed, scratch_.bytes());
  }
  return scratch_.data();
}

void Ops::begin_capture() { fail(ErrorCode::kUnsupported, "{} cannot capture operations", name()); }

std::unique_ptr<CapturedStep> Ops::end_capture() {
  fail(ErrorCode::kUnsupported, "{} cannot capture operations", name());
}

std::unique_ptr<CapturedStep> capture(Ops& ops, const std::function<void()>& work) {
  ops.begin_capture();
  try {
    work();
  } catch (...) {
    try {
      ops.end_capture();
    } catch (...) {  // what was thrown first says more
    }
    throw;
  }
  return ops.end_capture();
}

}  // namespace lockstep
