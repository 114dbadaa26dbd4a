#include "lockstep/train/generate/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/data/unicode/utf8_stream.h"
#include "lockstep/nn/generate/continuation.h"

namespace lockstep::train {

Generator::Generator(nn::Decoder& decoder, const data::Tokenizer& tokenizer)
    : decoder_(decoder), tokenizer_(tokenizer) {
  if (tokenizer.vocabulary() > decoder.classes()) {
    fail(ErrorCode::kInvalidArgument,
         "the tokenizer has {} tokens and the model {}; use the tokenizer that the model was "
         "trained with",
         tokenizer.vocabulary(), decoder.classes());
  }
}

std::vector<data::TokenId> Generator::prompt(std::string_view text) const {
  std::vector<data::TokenId> ids;
  if (const auto begin = tokenizer_.special(data::Special::kBegin)) ids.push_back(*begin);
  tokenizer_.encode(text, ids);
  const bool twice = ids.size() > 1 && ids[0] == ids[1] &&
                     ids[0] == tokenizer_.special(data::Special::kBegin);  // it was written out
  if (twice) ids.erase(ids.begin());
  return ids;
}

std::vector<data::TokenId> Generator::beginning() const {
  for (const data::Special which : {data::Special::kBegin, data::Special::kEndOfText}) {
    if (const auto token = tokenizer_.special(which)) return {*token};
  }
  fail(ErrorCode::kInvalidArgument,
       "the prompt is empty, and a {} tokenizer has no token that begins a text; give a prompt",
       tokenizer_.kind());
}

bool Generator::ends_text(data::TokenId token) const {
  return token == tokenizer_.special(data::Special::kEndOfText);
}

void Generator::check_prompt(std::span<const data::TokenId> prompt) const {
  if (static_cast<std::int64_t>(prompt.size()) < decoder_.positions()) return;
  fail(ErrorCode::kInvalidArgument,
       "the prompt has {} tokens and fills the context of {}; give a shorter prompt", prompt.size(),
       decoder_.positions());
}

// The texts that are being written, round by round: a round is a token of each.
class Generator::Texts {
 public:
  Texts(Generator& generator, const std::vector<std::vector<data::TokenId>>& prompts,
        const GenerateOptions& options, const ListenToAll& listen)
      : generator_(generator),
        decoder_(generator.decoder_),
        options_(options),
        listen_(listen),
        continuation_(decoder_, {.options = options.sampling.choice(),
                                 .choices = generator.tokenizer_.vocabulary()}),
        texts_(prompts.size()),
        wanted_(static_cast<std::size_t>(decoder_.batch())) {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      texts_[i].prompt = prompts[i].empty() ? generator.beginning() : prompts[i];
      generator.check_prompt(texts_[i].prompt);
    }
  }

  std::vector<Generation> run() {
    const auto begin = SteadyClock::now();
    for (std::int64_t i = 0; i < decoder_.batch(); ++i) decoder_.rewind(0, i);
    if (options_.max_new_tokens > 0) read_prompts();
    const double prompt_seconds = seconds_since(begin);
    const auto prompts_end = SteadyClock::now();
    while (is_any_wanted()) write_round();
    const double seconds = seconds_since(prompts_end);
    std::vector<Generation> made;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      tell(i, texts_[i].characters.finish());
      texts_[i].made.prompt_seconds = prompt_seconds;
      texts_[i].made.seconds = seconds;
      made.push_back(std::move(texts_[i].made));
    }
    return made;
  }

 private:
  struct Text {
    std::vector<data::TokenId> prompt;
    Generation made;
    data::Utf8Stream characters;
    std::int64_t read = 0;  // tokens in the cache when all queued rounds are done
  };

  // Sequences that no text has follow the first text, so that there is something to compute.
  void read_prompts() {
    for (std::size_t i = 0; i < wanted_.size(); ++i) {
      const bool is_text = i < texts_.size();
      const Text& text = texts_[is_text ? i : 0];
      const auto length = static_cast<std::int64_t>(text.prompt.size());
      decoder_.prefill(is_text ? std::span(text.prompt) : std::span(text.prompt).first(1),
                       static_cast<std::int64_t>(i));
      continuation_.begin(static_cast<std::int64_t>(i), options_.sampling.seed, length);
      if (!is_text) continue;
      texts_[i].read = length;
      wanted_[i] = true;
    }
    continuation_.queue_round();
    rounds_ = 1;
  }

  bool is_any_wanted() const { return std::ranges::find(wanted_, true) != wanted_.end(); }

  bool is_full(std::size_t i) const { return wanted_[i] && texts_[i].read >= decoder_.positions(); }
  bool is_any_full() const {
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (is_full(i)) return true;
    }
    return false;
  }

  void queue_rounds() {
    while (rounds_ < options_.max_new_tokens && continuation_.queued() < continuation_.ahead() &&
           !is_any_full()) {
      continuation_.queue_step();
      ++rounds_;
      for (Text& text : texts_) ++text.read;
    }
  }

  void write_round() {
    if (continuation_.queued() == 0) {
      make_room();
    } else {
      queue_rounds();
    }
    if (!is_any_wanted()) return;
    const auto taken = continuation_.take(wanted_);
    const std::vector<data::TokenId> tokens(taken.begin(), taken.end());
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (wanted_[i]) wanted_[i] = add(i, tokens[i]);
    }
  }

  // False where the text has ended.
  bool add(std::size_t i, data::TokenId token) {
    Generation& made = texts_[i].made;
    if (options_.stop_at_end_of_text && generator_.ends_text(token)) {
      made.end = Generation::End::kEndOfText;
      return false;
    }
    made.tokens.push_back(token);
    std::string bytes;
    generator_.tokenizer_.decode({&token, 1}, bytes);
    if (!tell(i, texts_[i].characters.add(bytes))) {
      made.end = Generation::End::kStopped;
      return false;
    }
    return static_cast<std::int64_t>(made.tokens.size()) < options_.max_new_tokens;
  }

  bool tell(std::size_t i, const std::string& piece) {
    texts_[i].made.text += piece;
    return piece.empty() || !listen_ || listen_(i, piece);
  }

  // The next round, all tokens so far being taken. Texts that are full end, or read their newer
  // half again.
  void make_room() {
    const bool slides = options_.slides && decoder_.positions() > 1;
    std::vector<std::size_t> full;
    bool others = false;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      if (!wanted_[i]) continue;
      if (!is_full(i)) {
        others = true;
      } else if (slides) {
        full.push_back(i);
      } else {
        texts_[i].made.end = Generation::End::kContext;
        wanted_[i] = false;
      }
    }
    if (full.empty()) {
      if (is_any_wanted()) queue_rounds();
      return;
    }
    if (others) {
      continuation_.step_without_round();
      for (Text& text : texts_) ++text.read;
    }
    for (const std::size_t i : full) read_again(i);
    continuation_.queue_round();
    ++rounds_;
  }

  void read_again(std::size_t i) {
    Text& text = texts_[i];
    std::vector<data::TokenId> all = text.prompt;
    all.insert(all.end(), text.made.tokens.begin(), text.made.tokens.end());
    const auto sequence = static_cast<std::int64_t>(i);
    const std::int64_t kept = decoder_.positions() / 2;
    decoder_.rewind(0, sequence);
    decoder_.prefill(std::span(all).last(static_cast<std::size_t>(kept)), sequence);
    continuation_.begin(sequence, options_.sampling.seed, static_cast<std::int64_t>(all.size()));
    text.read = kept;
  }

  Generator& generator_;
  nn::Decoder& decoder_;
  const GenerateOptions& options_;
  const ListenToAll& listen_;
  nn::Continuation continuation_;
  std::vector<Text> texts_;
  std::vector<bool> wanted_;  // of every sequence: its text continues
  std::int64_t rounds_ = 0;   // that were queued
};

std::vector<Generation> Generator::run_all(const std::vector<std::vector<data::TokenId>>& prompts,
                                           const GenerateOptions& options,
                                           const ListenToAll& listen) {
  if (static_cast<std::int64_t>(prompts.size()) > decoder_.batch()) {
    fail(ErrorCode::kInvalidArgument,
         "got {} prompts for a decoder of {} sequences; use a larger batch or fewer prompts",
         prompts.size(), decoder_.batch());
  }
  if (prompts.empty()) return {};
  return Texts(*this, prompts, options, listen).run();
}

Generation Generator::run(const GenerateOptions& options, const Listen& listen) {
  const auto hear = [&](std::size_t, std::string_view piece) { return !listen || listen(piece); };
  return std::move(run_all({options.prompt}, options, hear).front());
}

}  // namespace lockstep::train
