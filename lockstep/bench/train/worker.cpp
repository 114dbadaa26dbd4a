#include "lockstep/bench/train/worker.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/system/resident.h"
#include "lockstep/bench/train/helper.h"
#include "lockstep/bench/train/products.h"
#include "lockstep/bench/train/synthetic_batches.h"
#include "lockstep/ops/timed_ops.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::bench {
namespace {

using Json = nlohmann::json;
using train::TrainOptions;

[[noreturn]] void fail_unknown(std::string_view request) {
  fail(ErrorCode::kInvalidArgument, "unknown request '{}'", request);
}

}  // namespace

void serve_training(const TrainOptions& options) {
  const auto ops = train::make_ops(options);
  TimedOps timed(*ops);
  train::Trainer trainer(options, timed);
  const nn::MemoryPlan& plan = trainer.replica().plan();
  const SyntheticBatches batches(train::formula_shape_of(options), plan.setup.shape,
                                 train::solved(options.batch).accumulation);
  const auto answer = [&](std::string_view request) -> std::string {
    if (request == "step") {
      // An update that overlaps belongs to the step after it, which must not begin late.
      if (trainer.overlaps_update()) trainer.step(batches.all(), [&] { return batches.all(); });
      const train::StepMetrics metrics = trainer.step(batches.all(), [&] { return batches.all(); });
      return Json{{"seconds", metrics.seconds}, {"loss", metrics.loss}}.dump();
    }
    if (request == "reset") {
      reset_peak_resident();
      reset_peak_memory(ops->device());
      return "{}";
    }
    if (request == "profile") {
      timed.start();
      const train::StepMetrics metrics = trainer.step(batches.all());
      Json operations = Json::array();
      for (const OpTime& one : total_times(timed.stop())) {
        operations.push_back({{"operation", one.operation},
                              {"calls", one.calls},
                              {"seconds", one.seconds},
                              {"flops", one.flops}});
      }
      return Json{{"seconds", metrics.seconds}, {"operations", std::move(operations)}}.dump();
    }
    if (request == "usage") {
      const bool on_cpu = ops->device() == Device{};
      const std::size_t peak = on_cpu ? peak_resident_bytes() : peak_memory(ops->device());
      return Json{{"peak_bytes", peak}}.dump();
    }
    fail_unknown(request);
  };
  serve_helper(Json{{"version", ops->name()}}.dump(), answer);
}

void serve_products(const TrainOptions& options) {
  const auto ops = train::make_ops(options);
  const auto products = products_of(train::formula_shape_of(options), train::setup_of(options));
  const auto answer = [&](std::string_view request) -> std::string {
    if (request != "gemm") fail_unknown(request);
    return Json{{"flops_per_second", measure_products(products, *ops)}}.dump();
  };
  serve_helper(Json{{"version", ops->name()}}.dump(), answer);
}

}  // namespace lockstep::bench
