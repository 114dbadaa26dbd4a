#include "lockstep/bench/train/worker.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "lockstep/base/counter_rng.h"
#include "lockstep/base/error.h"
#include "lockstep/base/resident.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/bench/train/products.h"
#include "lockstep/train/trainer.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;
using train::TrainOptions;

[[noreturn]] void fail_unknown(std::string_view request) {
  fail(ErrorCode::kInvalidArgument, "there is no request '{}'", request);
}

// Random tokens; each has the next one as its target, BERT's a token of its own.
class SyntheticBatches {
 public:
  SyntheticBatches(const plan::ModelShape& model, const nn::BatchShape& shape, int count)
      : types_(static_cast<std::size_t>(shape.rows())) {
    const auto sequence = static_cast<std::uint64_t>(shape.sequence);
    for (int i = 0; i < count; ++i) {
      std::vector<std::int32_t>& tokens = tokens_.emplace_back();
      std::vector<std::int32_t>& targets = targets_.emplace_back();
      for (std::uint64_t row = 0; row < static_cast<std::uint64_t>(shape.batch); ++row) {
        const auto token = [&](std::uint64_t at) {
          const std::uint32_t word =
              random_word(1, static_cast<std::uint64_t>(i), row * (sequence + 1) + at);
          return static_cast<std::int32_t>(word % model.vocabulary);
        };
        for (std::uint64_t at = 0; at < sequence; ++at) {
          tokens.push_back(token(at));
          targets.push_back(token(at + 1));
        }
      }
    }
    const Shape rows{shape.batch, shape.sequence};
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      nn::Batch& batch = batches_.emplace_back();
      batch.shape = shape;
      batch.tokens = tensor_of(std::span(tokens_[i]), rows);
      batch.targets = tensor_of(std::span(targets_[i]), rows);
      batch.types = tensor_of(std::span(types_), rows);
    }
  }

  std::span<const nn::Batch> all() const { return batches_; }

 private:
  std::vector<std::vector<std::int32_t>> tokens_, targets_;
  std::vector<std::int32_t> types_;
  std::vector<nn::Batch> batches_;
};

}  // namespace

void serve_training(const TrainOptions& options) {
  const auto ops = make_cpu_ops(train::threads_of(options));
  train::Trainer trainer(options, *ops);
  const nn::MemoryPlan& plan = trainer.replica().plan();
  const SyntheticBatches batches(train::shape_of(options), plan.setup.shape,
                                 train::solved(options.batch).accumulation);
  const auto answer = [&](std::string_view request) -> std::string {
    if (request == "step") {
      const train::StepMetrics metrics = trainer.step(batches.all());
      return Json{{"seconds", metrics.seconds}, {"loss", metrics.loss}}.dump();
    }
    if (request == "reset") {
      reset_peak_resident();
      return "{}";
    }
    if (request == "usage") return Json{{"peak_bytes", peak_resident_bytes()}}.dump();
    fail_unknown(request);
  };
  serve_helper(Json{{"version", ops->name()}}.dump(), answer);
}

void serve_products(const TrainOptions& options) {
  const auto ops = make_cpu_ops(train::threads_of(options));
  const auto products = products_of(train::shape_of(options), train::setup_of(options));
  const auto answer = [&](std::string_view request) -> std::string {
    if (request != "gemm") fail_unknown(request);
    return Json{{"flops_per_second", measure_products(products, *ops)}}.dump();
  };
  serve_helper(Json{{"version", ops->name()}}.dump(), answer);
}

}  // namespace lockstep::bench
