// Tokens are hidden and asked for: BERT's objective.
//
//   tokens    [CLS]  the   [MASK]  sat   tree   .  [SEP]
//   targets     -     -     cat     -     on    -    -
//
// A sequence is a window of the stream between [CLS] and [SEP], where the tokenizer has these.
// Which of its tokens are chosen, and what becomes of each, is a function of seed, sequence and
// place.
#include <algorithm>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/math/counter_rng.h"
#include "lockstep/data/token_file/windows.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/train/dataset/sequence_source.h"
#include "lockstep/train/dataset/token_stream.h"

namespace lockstep::train {
namespace {

using data::Special;
using data::TokenId;

// Of the chosen tokens.
constexpr double kHidden = 0.8;
constexpr double kHiddenOrReplaced = 0.9;  // the others stay as they are

constexpr Special kAllSpecials[] = {Special::kEndOfText, Special::kBegin, Special::kUnknown,
                                    Special::kPadding,   Special::kMask,  Special::kClassify,
                                    Special::kSeparate};

const data::Tokenizer& tokenizer_of(const Dataset& dataset) {
  if (!dataset.tokenizer) {
    fail(ErrorCode::kInvalidArgument,
         "a masked model needs the mask token of a tokenizer; give data.tokenizer");
  }
  return *dataset.tokenizer;
}

// The tokenizer's own, or the id behind its last, where the model has one more.
TokenId mask_of(const data::Tokenizer& tokenizer, std::int64_t vocabulary) {
  if (const auto mask = tokenizer.special(Special::kMask)) return *mask;
  if (tokenizer.vocabulary() >= vocabulary) {
    fail(ErrorCode::kInvalidArgument,
         "a masked model needs a mask token, but the {} tokenizer has none, and the model's "
         "vocabulary of {} has no free id; use a tokenizer like BERT's, or set model.vocabulary = "
         "{}",
         tokenizer.kind(), vocabulary, tokenizer.vocabulary() + 1);
  }
  return static_cast<TokenId>(tokenizer.vocabulary());
}

class MaskedTokenSource final : public SequenceSource {
 public:
  MaskedTokenSource(const Dataset& dataset, const SourceSetup& setup)
      : SequenceSource(setup.shape, {.tokens = setup.shape.sequence,
                                     .targets = setup.shape.sequence,
                                     .types = setup.shape.sequence,
                                     .key_mask = setup.shape.sequence}),
        tokenizer_(tokenizer_of(dataset)),
        mask_(mask_of(tokenizer_, setup.vocabulary)),
        padding_(tokenizer_.special(Special::kPadding).value_or(0)),
        framed_(tokenizer_.special(Special::kClassify) && tokenizer_.special(Special::kSeparate)),
        length_(content_length(setup.shape.sequence, framed_)),
        vocabulary_(setup.vocabulary),
        chosen_(keep_limit(dataset.mask_fraction)),
        training_seed_(nn::seed_for(setup.seed, "mask")),
        validation_seed_(nn::seed_for(setup.seed, "mask of validation")),
        streams_(token_streams(dataset, length_)),
        order_(streams_.training.tokens, length_, nn::seed_for(setup.seed, "data")) {
    specials_.insert(mask_);
    for (const Special special : kAllSpecials) {
      if (const auto id = tokenizer_.special(special)) specials_.insert(*id);
    }
    if (tokenizer_.vocabulary() <= static_cast<std::int64_t>(specials_.size()) + 1) {
      fail(ErrorCode::kInvalidArgument, "the tokenizer has fewer than two tokens for text");
    }
  }

  std::uint64_t sequences() const override { return order_.windows(); }

 protected:
  std::uint64_t validation_sequences() const override {
    return (streams_.validation.tokens + length_ - 1) / length_;
  }

  void fill_training(const SequenceFields& fields, std::uint64_t sequence) override {
    const std::uint64_t first = order_.first_position(sequence);
    const std::uint64_t before_end = std::min(length_, order_.positions() - first);
    content_.resize(length_);
    const std::span<TokenId> content(content_);
    streams_.training.read(first, content.first(before_end), vocabulary_);
    streams_.training.read(0, content.subspan(before_end), vocabulary_);
    fill(fields, training_seed_, sequence);
  }

  void fill_validation(const SequenceFields& fields, std::uint64_t sequence) override {
    const std::uint64_t first = sequence * length_;
    content_.resize(std::min(length_, streams_.validation.tokens - first));
    streams_.validation.read(first, content_, vocabulary_);
    fill(fields, validation_seed_, sequence);
  }

 private:
  static std::uint64_t content_length(std::int64_t sequence, bool framed) {
    const std::int64_t length = sequence - (framed ? 2 : 0);
    if (length < 1) {
      fail(ErrorCode::kInvalidArgument,
           "a sequence of {} is too short for a token between [CLS] and [SEP]", sequence);
    }
    return static_cast<std::uint64_t>(length);
  }

  // content_, framed and padded to the sequence's length, with tokens hidden.
  void fill(const SequenceFields& fields, std::uint64_t seed, std::uint64_t sequence) const {
    auto at = fields.tokens.begin();
    if (framed_) *at++ = *tokenizer_.special(Special::kClassify);
    at = std::copy(content_.begin(), content_.end(), at);
    if (framed_) *at++ = *tokenizer_.special(Special::kSeparate);
    const auto used = at - fields.tokens.begin();
    std::fill(at, fields.tokens.end(), padding_);
    std::fill(fields.key_mask.begin() + used, fields.key_mask.end(), std::uint8_t{0});

    std::vector<std::size_t> places;  // of tokens that stand for text
    bool any = false;
    for (std::size_t i = 0; i < fields.tokens.size(); ++i) {
      if (specials_.contains(fields.tokens[i]) || fields.key_mask[i] == 0) continue;
      places.push_back(i);
      const RandomWords words = random_block(seed, sequence, i);
      if (!keeps(words[0], chosen_)) continue;
      ask_for(fields, i, words);
      any = true;
    }
    // A sequence without a single question would teach nothing.
    if (any || places.empty()) return;
    const RandomWords words = random_block(seed, sequence, fields.tokens.size());
    ask_for(fields, places[words[0] % places.size()], words);
  }

  void ask_for(const SequenceFields& fields, std::size_t place, const RandomWords& words) const {
    TokenId& token = fields.tokens[place];
    fields.targets[place] = token;
    const auto fate = static_cast<double>(to_uniform(words[1]));
    if (fate < kHidden) {
      token = mask_;
    } else if (fate < kHiddenOrReplaced) {
      const auto count = static_cast<std::uint32_t>(tokenizer_.vocabulary());
      std::uint32_t other = words[2] % count;
      while (specials_.contains(static_cast<TokenId>(other)) ||
             static_cast<TokenId>(other) == token) {
        other = (other + 1) % count;
      }
      token = static_cast<TokenId>(other);
    }
  }

  const data::Tokenizer& tokenizer_;
  TokenId mask_;
  TokenId padding_;
  bool framed_;
  std::uint64_t length_;  // of a window
  std::int64_t vocabulary_;
  std::uint64_t chosen_;
  std::uint64_t training_seed_;
  std::uint64_t validation_seed_;
  TokenStreams streams_;
  data::WindowOrder order_;
  std::set<TokenId> specials_;
  std::vector<TokenId> content_;
};

}  // namespace

std::unique_ptr<SequenceSource> make_masked_token_source(const Dataset& dataset,
                                                         const SourceSetup& setup) {
  return std::make_unique<MaskedTokenSource>(dataset, setup);
}

}  // namespace lockstep::train
