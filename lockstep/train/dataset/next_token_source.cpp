// Each token of a window is asked for the one behind it.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/data/token_file/windows.h"
#include "lockstep/nn/parameters/seed.h"
#include "lockstep/train/dataset/sequence_source.h"
#include "lockstep/train/dataset/token_stream.h"

namespace lockstep::train {
namespace {

// A position is a token with its target, so there is one less than tokens: the last has none. A
// window that goes once around the end takes up again at the first token, with its own target.
class NextTokenSource final : public SequenceSource {
 public:
  NextTokenSource(const Dataset& dataset, const SourceSetup& setup)
      : SequenceSource(setup.shape,
                       {.tokens = setup.shape.sequence, .targets = setup.shape.sequence}),
        length_(static_cast<std::uint64_t>(setup.shape.sequence)),
        vocabulary_(setup.vocabulary),
        streams_(token_streams(dataset, length_ + 1)),
        order_(streams_.training.tokens - 1, length_, nn::seed_for(setup.seed, "data")) {}

  std::uint64_t sequences() const override { return order_.windows(); }

 protected:
  std::uint64_t validation_sequences() const override {
    const std::uint64_t tokens = streams_.validation.tokens;
    return tokens < 2 ? 0 : (tokens - 1 + length_ - 1) / length_;
  }

  void fill_training(const SequenceFields& fields, std::uint64_t sequence) override {
    const std::uint64_t first = order_.first_position(sequence);
    const std::uint64_t before_end = std::min(length_, order_.positions() - first);
    fill(streams_.training, first, before_end, fields, 0);
    fill(streams_.training, 0, length_ - before_end, fields, before_end);
  }

  void fill_validation(const SequenceFields& fields, std::uint64_t sequence) override {
    const std::uint64_t first = sequence * length_;
    fill(streams_.validation, first, std::min(length_, streams_.validation.tokens - 1 - first),
         fields, 0);
  }

 private:
  // `count` positions from `first` on, to the position `to` of the sequence.
  void fill(const TokenStream& stream, std::uint64_t first, std::uint64_t count,
            const SequenceFields& fields, std::uint64_t to) {
    if (count == 0) return;
    read_.resize(count + 1);
    stream.read(first, read_, vocabulary_);
    const auto at = static_cast<std::ptrdiff_t>(to);
    std::copy(read_.begin(), read_.end() - 1, fields.tokens.begin() + at);
    std::copy(read_.begin() + 1, read_.end(), fields.targets.begin() + at);
  }

  std::uint64_t length_;
  std::int64_t vocabulary_;
  TokenStreams streams_;
  data::WindowOrder order_;
  std::vector<data::TokenId> read_;
};

}  // namespace

std::unique_ptr<SequenceSource> make_next_token_source(const Dataset& dataset,
                                                       const SourceSetup& setup) {
  return std::make_unique<NextTokenSource>(dataset, setup);
}

}  // namespace lockstep::train
