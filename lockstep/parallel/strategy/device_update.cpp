#include "lockstep/parallel/strategy/device_update.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lockstep/parallel/gradients/gradient_chunks.h"

namespace lockstep::parallel {
namespace {

constexpr std::int64_t kNumbers = 3;
constexpr std::int64_t kResults = 2;
constexpr std::size_t kAlignment = 256;
// Operations choose their algorithms when they first run; from this run on they are captured.
constexpr int kCapturedRun = 2;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Enough for those of blocks and for those of the whole.
std::int64_t count_chunks(const nn::FlatParameters& flat) {
  return static_cast<std::int64_t>(
      std::max(gradient_chunks(flat).size(), chunk_count(flat.elements())));
}

// In the order of the flat buffer, neighbours that are updated alike as one.
std::vector<ops::AdamSegment> segments_of(const nn::FlatParameters& flat) {
  std::vector<ops::AdamSegment> segments;
  for (std::size_t block = flat.blocks(); block-- > 0;) {  // as their ranges lie in the buffer
    for (const nn::FlatRun& run : flat.runs(block)) {
      const auto first = static_cast<std::int64_t>(run.range.first);
      const auto elements = static_cast<std::int64_t>(run.range.elements);
      if (!segments.empty() && segments.back().decays == run.decays &&
          segments.back().first + segments.back().elements == first) {
        segments.back().elements += elements;
      } else {
        segments.push_back({first, elements, run.decays});
      }
    }
  }
  return segments;
}

std::size_t table_bytes(const nn::FlatParameters& flat) {
  return ops::adam_table(segments_of(flat)).size() * sizeof(std::int64_t);
}

std::size_t squares_bytes(const nn::FlatParameters& flat) {
  return static_cast<std::size_t>(count_chunks(flat)) * sizeof(double);
}

}  // namespace

bool DeviceUpdate::serves(const nn::MemoryPlan& plan) {
  const bool is_whole =
      plan.stages == 1 && plan.flat.tensor_group().size == 1 && plan.flat.expert_group().size == 1;
  return plan.device != Device{} && !plan.sharding.any() && !plan.tiers.any() && is_whole;
}

std::size_t DeviceUpdate::bytes(const nn::MemoryPlan& plan) {
  if (!serves(plan)) return 0;
  return kAlignment + aligned(squares_bytes(plan.flat)) + aligned(table_bytes(plan.flat));
}

DeviceUpdate::DeviceUpdate(nn::Replica& replica, bool by_block)
    : replica_(replica),
      by_block_(by_block),
      memory_(bytes(replica.plan()), replica.ops().device()),
      host_((kNumbers + kResults) * sizeof(double)) {
  const nn::FlatParameters& flat = replica.flat();
  numbers_ = memory_.tensor(DType::kF64, {kNumbers});
  results_ = memory_.tensor(DType::kF64, {kResults}, kNumbers * sizeof(double));
  squares_ = memory_.tensor(DType::kF64, {count_chunks(flat)}, kAlignment);
  std::vector<std::int64_t> table = ops::adam_table(segments_of(flat));
  segments_ =
      memory_.tensor(DType::kI64, {static_cast<std::int64_t>(table.size()) / 4, std::int64_t{4}},
                     kAlignment + aligned(squares_bytes(flat)));
  copy(segments_, tensor_of(std::span(table)));
}

void DeviceUpdate::upload(const UpdateRequest& request) {
  const Tensor from = host_.tensor(DType::kF64, {kNumbers});
  const auto numbers = from.as<double>();
  numbers[0] = request.rate;
  numbers[1] = static_cast<double>(request.updates + 1);
  numbers[2] = request.loss_scale;
  replica_.ops().in_order([&] { copy(numbers_, from); });
}

// The sums of squares of all chunks, in the order of the flat buffer.
Tensor DeviceUpdate::queue_squares() {
  const nn::FlatParameters& flat = replica_.flat();
  std::vector<nn::FlatRange> ranges;
  if (!by_block_) ranges.push_back({0, flat.elements()});  // elements between blocks are zero
  for (std::size_t block = flat.blocks(); by_block_ && block-- > 0;) {
    if (flat.range(block).elements > 0) ranges.push_back(flat.range(block));
  }
  std::int64_t done = 0;
  for (const nn::FlatRange& range : ranges) {
    const auto chunks = static_cast<std::int64_t>(chunk_count(range.elements));
    replica_.ops().run(
        ops::ChunkedSumOfSquares{.x = replica_.states().slice(range).gradients,
                                 .chunk_elements = static_cast<std::int64_t>(kChunkElements),
                                 .results = squares_.slice(done, chunks)});
    done += chunks;
  }
  return squares_.slice(0, done);
}

void DeviceUpdate::queue(const optim::OptimizerOptions& options) {
  Ops& ops = replica_.ops();
  const nn::FlatParameters& flat = replica_.flat();
  const nn::States& states = replica_.states();
  ops.use_scratch({});  // what was handed over last may be gone when this is launched again
  const Tensor squares = queue_squares();
  const ops::Scalar scale(results_.slice(1, 1));
  ops.run(ops::ClipScale{.squares = squares,
                         .limit = options.max_grad_norm,
                         .loss_scale = ops::Scalar(numbers_.slice(2, 1)),
                         .norm = results_.slice(0, 1),
                         .scale = results_.slice(1, 1)});
  const optim::Range range{
      .master = states.master,
      .gradient = states.gradients,
      .parameter = replica_.setup().dtype != DType::kF32 ? states.parameters : Tensor(),
      .first_moment = states.first_moment,
      .second_moment = states.second_moment,
      .velocity = states.velocity};
  optim::update_segments(ops, options,
                         {.step = ops::Scalar(numbers_.slice(1, 1)),
                          .rate = ops::Scalar(numbers_.slice(0, 1)),
                          .gradient_scale = scale},
                         range, segments_of(flat), segments_);
  replica_.update_scaling();
  ops.in_order(
      [&] { copy(host_.tensor(DType::kF64, {kResults}, kNumbers * sizeof(double)), results_); });
}

UpdateResult DeviceUpdate::run(const UpdateRequest& request) {
  Ops& ops = replica_.ops();
  replica_.before_change_of_all();
  upload(request);
  if (captured_ && ops.can_capture()) {
    captured_->launch();
  } else if (captured_ || ++runs_ < kCapturedRun || !ops.can_capture()) {
    queue(request.optimizer);
  } else {
    captured_ = capture(ops, [&] { queue(request.optimizer); });
    captured_->launch();
  }
  ops.synchronize();
  const double norm = host_.tensor(DType::kF64, {kNumbers + kResults}).as<double>()[kNumbers];
  return {.gradient_norm = norm, .skipped = !std::isfinite(norm)};
}

}  // namespace lockstep::parallel
