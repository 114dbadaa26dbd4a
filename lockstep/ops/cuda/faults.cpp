#include "lockstep/ops/cuda/faults.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/ops/check.h"
#include "lockstep/tensor/cuda/check.h"
#include "lockstep/tensor/cuda/memory.h"

namespace lockstep::cuda {
namespace {

constexpr int kNoFaultByte = 0xff;  // every byte of kNoFault

void clear(Faults* words, cudaStream_t stream) {
  cuda::check(cudaMemsetAsync(words, kNoFaultByte, sizeof(Faults), stream), "clearing faults");
}

// The limit of an index into a tensor, or into a whole of which it is a shard.
std::int64_t all_of(std::int64_t whole, const Tensor& tensor, int dimension) {
  return whole > 0 ? whole : tensor.shape()[dimension];
}

}  // namespace

FaultWords::FaultWords(cudaStream_t stream) : stream_(stream) {
  cuda::check(cudaMalloc(reinterpret_cast<void**>(&on_device_), sizeof(Faults)),
              "allocating the words for faults");
  cuda::check(
      cudaHostAlloc(reinterpret_cast<void**>(&fetched_), sizeof(Faults), cudaHostAllocDefault),
      "allocating the words for faults");
  clear(on_device_, stream);
}

FaultWords::~FaultWords() {
  cuda::free_on_gpu(on_device_);
  cuda::free_pinned(reinterpret_cast<std::byte*>(fetched_));
}

void FaultWords::add(Expectations& to, std::string_view what, std::int64_t limit) {
  may_be_written_ = true;
  const Expectation expected{what, limit};
  if (std::ranges::find(to, expected) == to.end()) to.push_back(expected);
}

void FaultWords::expect(const ops::Embedding& call) {
  add(tokens_, "embedding: tokens", all_of(call.vocabulary, call.tokens_table, 0));
  if (!ops::is_given(call.types_table)) return;
  add(types_, "embedding: types", call.types_table.shape()[0]);
}

void FaultWords::expect(const ops::EmbeddingBackward& call) {
  if (ops::is_given(call.dtokens_table)) {
    add(tokens_, "embedding_backward: tokens", all_of(call.vocabulary, call.dtokens_table, 0));
  }
  if (!ops::is_given(call.dtypes_table)) return;
  add(types_, "embedding_backward: types", call.dtypes_table.shape()[0]);
}

void FaultWords::expect(const ops::LogitStatistics& call) {
  add(targets_, "logit_statistics: targets", all_of(call.all_classes, call.logits, 1));
}

void FaultWords::expect(const ops::CrossEntropy& call) {
  add(targets_, "cross_entropy: targets", all_of(call.all_classes, call.logits, 1));
}

// Lengths use the word of types.
void FaultWords::expect(const ops::DecodeAttention& call) {
  add(types_, "decode_attention: lengths", call.cache.shape()[1]);
}

// Rows and pairs use the word of tokens, experts that of types.
void FaultWords::expect(const ops::RouteBackward& call) {
  add(tokens_, "route_backward: rows", static_cast<std::int64_t>(call.rows.elements()));
  add(types_, "route_backward: experts", call.logits.shape()[1]);
}

void FaultWords::expect(const ops::GatherTokens& call) {
  add(tokens_, "gather_tokens: pairs", call.x.shape()[0] * call.experts_per_token);
}

void FaultWords::expect(const ops::CombineTokens& call) {
  add(tokens_, "combine_tokens: rows", call.routed.shape()[0]);
}

void FaultWords::fetch() {
  if (!std::exchange(may_be_written_, false)) return;
  cuda::check(
      cudaMemcpyAsync(fetched_, on_device_, sizeof(Faults), cudaMemcpyDeviceToHost, stream_),
      "fetching faults");
  is_fetched_ = true;
}

void FaultWords::check() {
  if (!std::exchange(is_fetched_, false)) return;
  const Faults found = *fetched_;
  const Expectations tokens = tokens_, types = types_, targets = targets_;
  if (!keeps_) {
    for (Expectations* done : {&tokens_, &types_, &targets_}) done->clear();
  }
  if (found.token == kNoFault && found.type == kNoFault && found.target == kNoFault) return;
  clear(on_device_, stream_);
  check(found.token, tokens, false);
  check(found.type, types, false);
  check(found.target, targets, true);
}

void FaultWords::check(unsigned long long word, const Expectations& expected,
                       bool allow_no_target) {
  if (word == kNoFault) return;
  const auto row = static_cast<std::int64_t>(word >> 32);
  const auto index = static_cast<std::int32_t>(static_cast<std::uint32_t>(word));
  const auto is_wrong_for = [index](const Expectation& one) {
    return index < 0 || index >= one.limit;
  };
  const auto found = std::ranges::find_if(expected, is_wrong_for);
  if (found == expected.end()) {
    fail(ErrorCode::kInvalidArgument,
         "an operation on the GPU got the index {} in row {}, which is outside its table", index,
         row);
  }
  ops::fail_index(found->what, row, index, found->limit, allow_no_target);
}

}  // namespace lockstep::cuda
