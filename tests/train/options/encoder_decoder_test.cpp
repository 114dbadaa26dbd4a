// The formulas of an encoder-decoder say what its model has.
#include <gtest/gtest.h>

#include "lockstep/bench/train/synthetic_batches.h"
#include "lockstep/train/memory/run_plan.h"
#include "lockstep/train/trainer/trainer.h"

namespace lockstep::train {
namespace {

constexpr ModelFamily kFamilies[] = {ModelFamily::kEncoderDecoder, ModelFamily::kT5,
                                     ModelFamily::kT5V11};

TrainOptions small_encoder_decoder(ModelFamily family) {
  TrainOptions options;
  options.model.family = family;
  if (has_shape(options)) {
    options.model.decoder_layers = 2;
    options.model.head_size = 10;
    options.model.relative_buckets = 6;
  }
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
  for (const ModelFamily family : kFamilies) {
    SCOPED_TRACE(name(family));
    const TrainOptions options = small_encoder_decoder(family);
    const auto ops = make_reference_ops();
    const nn::MemoryPlan plan = plan_run(options, *ops);
    const plan::ModelShape shape = formula_shape_of(options);
    EXPECT_EQ(plan::count_parameters(shape).total(), plan.flat.count());
    const double tokens = 2 * 10;
    EXPECT_DOUBLE_EQ(tokens * plan::count_flops(shape, 10).forward(), plan.flops.forward);
  }
}

TEST(EncoderDecoderFormula, SyntheticBatchesTrainIt) {
  for (const ModelFamily family : kFamilies) {
    SCOPED_TRACE(name(family));
    const TrainOptions options = small_encoder_decoder(family);
    const auto ops = make_reference_ops();
    Trainer trainer(options, *ops);
    const bench::SyntheticBatches batches(formula_shape_of(options),
                                          trainer.replica().plan().setup.shape, 1);
    const double first = trainer.step(batches.all()).loss;
    double last = first;
    for (int i = 0; i < 10; ++i) last = trainer.step(batches.all()).loss;
    EXPECT_LT(last, first);
  }
}

}  // namespace
}  // namespace lockstep::train
