// The formulas of an encoder-decoder say what its model has.
#include <gtest/gtest.h>

#include "lockstep/bench/train/synthetic_batches.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {
namespace {

TrainOptions small_encoder_decoder() {
  TrainOptions options;
  options.model.family = ModelFamily::kEncoderDecoder;
  options.model.layers = 3;
  options.model.hidden = 24;
  options.model.heads = 2;
  options.model.feed_forward = 40;
  options.model.vocabulary = 101;
  options.batch = {.sequence = 10, .micro = 2};
  options.precision = plan::Precision::kF32;
  return options;
}

TEST(EncoderDecoderFormula, CountsParametersAndFlopsOfTheModel) {
  const TrainOptions options = small_encoder_decoder();
  const auto ops = make_reference_ops();
  const nn::MemoryPlan plan = plan_run(options, *ops);
  const plan::ModelShape shape = formula_shape_of(options);
  EXPECT_EQ(plan::count_parameters(shape).total(), plan.flat.count());
  const double tokens = 2 * 10;
  EXPECT_DOUBLE_EQ(tokens * plan::count_flops(shape, 10).forward(), plan.flops.forward);
}

TEST(EncoderDecoderFormula, SyntheticBatchesTrainIt) {
  const TrainOptions options = small_encoder_decoder();
  const auto ops = make_reference_ops();
  Trainer trainer(options, *ops);
  const bench::SyntheticBatches batches(formula_shape_of(options),
                                        trainer.replica().plan().setup.shape, 1);
  const double first = trainer.step(batches.all()).loss;
  double last = first;
  for (int i = 0; i < 10; ++i) last = trainer.step(batches.all()).loss;
  EXPECT_LT(last, first);
}

}  // namespace
}  // namespace lockstep::train
