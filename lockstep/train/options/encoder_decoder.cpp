// The sizes of an encoder-decoder, for its model and for formulas about it.
#include "lockstep/base/error.h"
#include "lockstep/train/options/options.h"

namespace lockstep::train {

nn::EncoderDecoderShape encoder_decoder_shape_of(const TrainOptions& options) {
  const ModelChoice& choice = options.model;
  if (choice.vocabulary == 0) {
    fail(ErrorCode::kInvalidArgument,
         "an encoder-decoder needs model.vocabulary, or data whose tokenizer says it");
  }
  nn::EncoderDecoderShape shape;
  const nn::Setup setup = setup_of(options);
  const std::int64_t positions = setup.shape.sequence * setup.context.size;
  shape.source_vocabulary = choice.vocabulary;
  shape.target_vocabulary = choice.vocabulary;
  shape.shared_vocabulary = true;
  shape.source_positions = positions;
  shape.target_positions = positions;
  if (choice.hidden > 0) shape.hidden = choice.hidden;
  if (choice.heads > 0) shape.heads = choice.heads;
  shape.feed_forward = choice.feed_forward > 0 ? choice.feed_forward : 4 * shape.hidden;
  if (choice.layers > 0) shape.encoder_layers = shape.decoder_layers = choice.layers;
  return shape;
}

plan::ModelShape formula_shape_of(const TrainOptions& options) {
  if (family_of(options) != ModelFamily::kEncoderDecoder) return shape_of(options);
  const nn::EncoderDecoderShape of = encoder_decoder_shape_of(options);
  const auto count = [](std::int64_t size) { return static_cast<plan::Count>(size); };
  plan::ModelShape shape = plan::usual_encoder_decoder();
  shape.name = std::string(plan::kEncoderDecoderName);
  shape.vocabulary = count(of.target_vocabulary);
  shape.positions = count(of.target_positions);
  shape.hidden = count(of.hidden);
  shape.layers = count(of.encoder_layers);
  shape.decoder_layers = count(of.decoder_layers);
  shape.heads = shape.kv_heads = count(of.heads);
  shape.feed_forward = count(of.feed_forward);
  return shape;
}

}  // namespace lockstep::train
