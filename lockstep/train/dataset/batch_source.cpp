#include "lockstep/train/dataset/batch_source.h"

#include "lockstep/base/error.h"
#include "lockstep/train/dataset/sequence_source.h"

namespace lockstep::train {

std::unique_ptr<BatchSource> make_batch_source(const Dataset& dataset, const SourceSetup& setup) {
  if (setup.shape.batch < 1 || setup.shape.sequence < 1) {
    fail(ErrorCode::kInvalidArgument, "a micro-batch of {} sequences of {} tokens is empty",
         setup.shape.batch, setup.shape.sequence);
  }
  if (setup.objective != Objective::kRegress && dataset.vocabulary() > setup.vocabulary) {
    fail(ErrorCode::kInvalidArgument,
         "the data has {} token ids, but the model only {}; set model.vocabulary to at least {}, "
         "or use the model's own tokenizer",
         dataset.vocabulary(), setup.vocabulary, dataset.vocabulary());
  }
  if (!dataset.mixture.empty()) {
    const bool masked = setup.objective == Objective::kMaskedToken;
    if (!masked && setup.objective != Objective::kNextToken) {
      fail(ErrorCode::kInvalidArgument, "data.mixture has tokens, which this model does not learn");
    }
    return make_mixture_source(dataset, setup,
                               masked ? make_masked_token_source : make_next_token_source);
  }
  switch (setup.objective) {
    case Objective::kNextToken:
      return make_next_token_source(dataset, setup);
    case Objective::kMaskedToken:
      return make_masked_token_source(dataset, setup);
    case Objective::kTranslate:
      return make_translation_source(dataset, setup);
    case Objective::kRegress:
      return make_table_source(dataset, setup);
  }
  fail(ErrorCode::kInvalidArgument, "unknown objective number {}",
       static_cast<int>(setup.objective));
}

}  // namespace lockstep::train
