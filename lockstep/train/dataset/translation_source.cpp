// Sentences and their translations:
//
//   source    the  cat  sat  </s>   -        tokens   <s>  die  Katze  sass  -
//                                            targets  die  Katze  sass  </s> -
//
// Pairs that are longer than the shape are left out, and left_out() says so.
#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/data/text/pairs.h"
#include "lockstep/data/token_file/windows.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/train/dataset/sequence_source.h"

namespace lockstep::train {
namespace {

class TranslationSource final : public SequenceSource {
 public:
  TranslationSource(const Dataset& dataset, const SourceSetup& setup)
      : SequenceSource(setup.shape, {.tokens = setup.shape.sequence,
                                     .targets = setup.shape.sequence,
                                     .key_mask = setup.shape.sequence,
                                     .source = setup.shape.source_sequence,
                                     .source_mask = setup.shape.source_sequence}),
        sequence_(setup.shape.sequence),
        all_pairs_(dataset.pairs),
        pairs_(pairs_that_fit(dataset, setup.shape)),
        held_back_(dataset.validates_all
                       ? pairs_.size()
                       : held_back_examples(pairs_.size(), dataset.validation_fraction)),
        tokens_(data::translation_tokens(*dataset.tokenizer)),
        order_(std::max<std::uint64_t>(pairs_.size() - held_back_, dataset.validates_all), 1,
               nn::seed_for(setup.seed, "data")) {
    for (const Dataset::Pair* pair : pairs_) {
      check(pair->source, setup.vocabulary);
      check(pair->target, setup.vocabulary);
    }
  }

  std::uint64_t sequences() const override { return order_.windows(); }

  std::string left_out() const override {
    const std::size_t missing = all_pairs_.size() - pairs_.size();
    if (missing == 0) return "";
    std::size_t longest = 0;
    for (const Dataset::Pair& pair : all_pairs_) longest = std::max(longest, tokens_of(pair));
    return fmt::format(
        "{} of {} pairs are skipped: with the end token one side is longer than the {} tokens of a "
        "sequence (the longest has {}); a larger train.seq_len includes them",
        format_count(missing), format_count(all_pairs_.size()), sequence_, longest);
  }

 protected:
  std::uint64_t validation_sequences() const override { return held_back_; }

  void fill_training(const SequenceFields& fields, std::uint64_t sequence) override {
    fill(fields, *pairs_[order_.first_position(sequence)]);
  }
  void fill_validation(const SequenceFields& fields, std::uint64_t sequence) override {
    fill(fields, *pairs_[pairs_.size() - held_back_ + sequence]);
  }

 private:
  // Of its longer side, with the end of the source, the begin or the end of the target.
  static std::size_t tokens_of(const Dataset::Pair& pair) {
    return std::max(pair.source.size(), pair.target.size()) + 1;
  }

  static std::vector<const Dataset::Pair*> pairs_that_fit(const Dataset& dataset,
                                                          const nn::BatchShape& shape) {
    if (dataset.pairs.empty() || !dataset.tokenizer) {
      fail(ErrorCode::kInvalidArgument, "the model trains on translation pairs; give data.pairs");
    }
    std::vector<const Dataset::Pair*> pairs;
    std::size_t shortest = ~std::size_t{0};
    for (const Dataset::Pair& pair : dataset.pairs) {
      shortest = std::min(shortest, tokens_of(pair));
      if (static_cast<std::int64_t>(pair.source.size()) < shape.source_sequence &&
          static_cast<std::int64_t>(pair.target.size()) < shape.sequence) {
        pairs.push_back(&pair);
      }
    }
    if (pairs.empty()) {
      fail(ErrorCode::kInvalidArgument,
           "none of the {} pairs fits into sequences of {} tokens of source and {} of target; the "
           "shortest takes {}: give a larger train.seq_len",
           dataset.pairs.size(), shape.source_sequence, shape.sequence, shortest);
    }
    return pairs;
  }

  static void check(const std::vector<data::TokenId>& ids, std::int64_t vocabulary) {
    for (const data::TokenId id : ids) {
      if (id >= 0 && id < vocabulary) continue;
      fail(ErrorCode::kInvalidArgument, "a pair has the token id {}, but the model has {} ids", id,
           vocabulary);
    }
  }

  void fill(const SequenceFields& fields, const Dataset::Pair& pair) const {
    auto at = std::copy(pair.source.begin(), pair.source.end(), fields.source.begin());
    *at++ = tokens_.end;
    std::fill(fields.source_mask.begin() + (at - fields.source.begin()), fields.source_mask.end(),
              std::uint8_t{0});
    std::fill(at, fields.source.end(), tokens_.end);

    fields.tokens[0] = tokens_.begin;
    at = std::copy(pair.target.begin(), pair.target.end(), fields.tokens.begin() + 1);
    std::fill(fields.key_mask.begin() + (at - fields.tokens.begin()), fields.key_mask.end(),
              std::uint8_t{0});
    std::fill(at, fields.tokens.end(), tokens_.end);
    *std::copy(pair.target.begin(), pair.target.end(), fields.targets.begin()) = tokens_.end;
  }

  std::int64_t sequence_;
  std::span<const Dataset::Pair> all_pairs_;
  std::vector<const Dataset::Pair*> pairs_;
  std::uint64_t held_back_;  // at the end
  data::TranslationTokens tokens_;
  data::WindowOrder order_;
};

}  // namespace

std::unique_ptr<BatchSource> make_translation_source(const Dataset& dataset,
                                                     const SourceSetup& setup) {
  return std::make_unique<TranslationSource>(dataset, setup);
}

}  // namespace lockstep::train
