#include "lockstep/train/generate/translate.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/data/unicode/utf8_stream.h"
#include "lockstep/tensor/buffer.h"
#include "lockstep/tensor/host_view.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/model_io/model_of_start.h"
#include "lockstep/train/model_io/saved_model.h"
#include "lockstep/train/model_io/stored_model.h"

namespace lockstep::train {
namespace {

TrainOptions options_for_one_pair(TrainOptions stored, plan::Precision precision) {
  TrainOptions options;
  options.model = std::move(stored.model);
  options.batch = {.sequence = stored.batch.sequence, .sequences = 1};
  options.precision = precision;
  options.recompute = RecomputeChoice::kFull;  // keeps least
  return options;
}

nn::Replica replica_for(const TrainOptions& options, Ops& ops) {
  nn::Model model = whole_model_of(options);
  nn::MemoryPlan plan = nn::plan_memory(model, setup_of(options), ops, nn::OptimizerState::kNone);
  return {std::move(model), std::move(plan), ops};
}

BatchMemory batch_for(const nn::BatchShape& shape) {
  return {shape,
          {.tokens = shape.sequence,
           .key_mask = shape.sequence,
           .source = shape.source_sequence,
           .source_mask = shape.source_sequence}};
}

}  // namespace

Translator::Translator(std::unique_ptr<data::Tokenizer> tokenizer, const TrainOptions& options,
                       const Read& read, Ops& ops)
    : tokenizer_(std::move(tokenizer)),
      ends_(data::translation_tokens(*tokenizer_)),
      classes_(options.model.vocabulary),
      replica_(replica_for(options, ops)),
      batch_(batch_for(replica_.setup().shape)) {
  read(replica_.flat(), replica_.states().master);
  replica_.round_parameters();
}

void Translator::fill_source(std::string_view source) {
  std::vector<data::TokenId> ids;
  tokenizer_->encode(source, ids);
  batch_.reset(1);
  const SequenceFields fields = batch_.sequence(0);
  if (ids.empty()) fail(ErrorCode::kInvalidArgument, "the text to translate is empty");
  if (ids.size() >= fields.source.size()) {
    fail(ErrorCode::kInvalidArgument,
         "the text has {} tokens, and the model was trained to read up to {} (train.seq_len = {}); "
         "give a shorter one",
         ids.size(), fields.source.size() - 1, fields.source.size());
  }
  const auto behind = std::ranges::copy(ids, fields.source.begin()).out;
  std::fill(behind, fields.source.end(), ends_.end);
  const auto mask = fields.source_mask.begin() + static_cast<std::ptrdiff_t>(ids.size());
  std::fill(mask + 1, fields.source_mask.end(), std::uint8_t{0});
  std::ranges::fill(fields.tokens, ends_.end);
  std::ranges::fill(fields.key_mask, std::uint8_t{0});
}

std::vector<float> Translator::logits_after(std::int64_t count) {
  Ops& ops = replica_.ops();
  const std::int64_t tokens = replica_.setup().shape.tokens();
  const DType dtype = replica_.setup().dtype;
  const Buffer memory(static_cast<std::size_t>(tokens * classes_) * size_of(dtype), ops.device());
  const Tensor all = memory.tensor(dtype, {tokens, classes_});
  replica_.evaluate(batch_.batches().front(), all);
  const Buffer wide(static_cast<std::size_t>(classes_) * sizeof(float), ops.device());
  const Tensor last = wide.tensor(DType::kF32, {1, classes_});
  ops.run(ops::Cast{.from = all.slice(count, 1), .to = last});
  ops.synchronize();
  const HostView view(last);
  std::vector<float> logits(view.as<float>().begin(), view.as<float>().end());
  for (data::TokenId id = 0; id < classes_; ++id) {
    const bool is_text = id < tokenizer_->vocabulary() && id != ends_.begin;
    if (!is_text && id != ends_.end) {
      logits[static_cast<std::size_t>(id)] = -std::numeric_limits<float>::infinity();
    }
  }
  return logits;
}

Generation Translator::run(std::string_view source, std::int64_t max_new_tokens,
                           const nn::SamplingOptions& sampling, const Generator::Listen& listen) {
  nn::Sampler sampler(sampling);
  fill_source(source);
  const SequenceFields fields = batch_.sequence(0);
  Generation made;
  data::Utf8Stream characters;
  const auto tell = [&](const std::string& piece) {
    made.text += piece;
    return piece.empty() || !listen || listen(piece);
  };
  const auto begin = SteadyClock::now();
  data::TokenId last = ends_.begin;
  for (std::int64_t count = 0; count < max_new_tokens; ++count) {
    const auto at = static_cast<std::size_t>(count);
    if (at == fields.tokens.size()) {
      made.end = Generation::End::kContext;
      break;
    }
    fields.tokens[at] = last;
    fields.key_mask[at] = 1;
    last = sampler.sample(logits_after(count), static_cast<std::uint64_t>(count));
    if (last == ends_.end) {
      made.end = Generation::End::kEndOfText;
      break;
    }
    made.tokens.push_back(last);
    std::string bytes;
    tokenizer_->decode({&last, 1}, bytes);
    if (!tell(characters.add(bytes))) {
      made.end = Generation::End::kStopped;
      break;
    }
  }
  made.seconds = seconds_since(begin);
  tell(characters.finish());
  return made;
}

namespace {

std::unique_ptr<Translator> open_foreign(const std::filesystem::path& folder,
                                         plan::Precision precision, Ops& ops, const Warn& warn) {
  TrainOptions stored;
  stored.model = choice_in(folder);
  if (!translates(stored)) return nullptr;
  SavedModel saved = open_model(folder, warn);
  if (!saved.tokenizer) {
    fail(ErrorCode::kInvalidArgument,
         "{} has no tokenizer.json, which says what its tokens mean; put it there",
         folder.string());
  }
  return std::make_unique<Translator>(std::move(saved.tokenizer),
                                      options_for_one_pair(stored, precision), saved.read, ops);
}

}  // namespace

std::unique_ptr<Translator> open_translator(const std::filesystem::path& path,
                                            plan::Precision precision, Ops& ops, const Warn& warn) {
  if (!std::filesystem::is_directory(path)) return nullptr;
  if (is_foreign(path)) return open_foreign(path, precision, ops, warn);
  Checkpoint about;  // what is known without reading the states
  about.folder = path;
  about.config = stored_text(path, kConfigFile);
  if (about.config.empty()) return nullptr;
  if (!translates(stored_options(about))) return nullptr;
  const Checkpoint checkpoint = open_checkpoint(path, warn);
  const std::string source = (checkpoint.folder / kTokenizerFile).string();
  return std::make_unique<Translator>(
      data::parse_tokenizer(checkpoint.tokenizer, source),
      options_for_one_pair(stored_options(checkpoint), precision),
      [&](const nn::FlatParameters& flat, const Tensor& buffer) {
        read_parameters(checkpoint, flat, buffer);
      },
      ops);
}

}  // namespace lockstep::train
