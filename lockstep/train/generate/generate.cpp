#include "lockstep/train/generate/generate.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/data/unicode/utf8_stream.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::train {
Generator::Generator(nn::Decoder& decoder, const data::Tokenizer& tokenizer)
    : decoder_(decoder), tokenizer_(tokenizer) {
  if (tokenizer.vocabulary() > decoder.classes()) {
    fail(ErrorCode::kInvalidArgument,
         "the tokenizer has {} tokens and the model {}; take the tokenizer that the model was "
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
       "there is nothing to continue: a {} tokenizer has no token that texts begin with; give a "
       "prompt",
       tokenizer_.kind());
}

bool Generator::ends_text(data::TokenId token) const {
  return token == tokenizer_.special(data::Special::kEndOfText);
}

Tensor Generator::read_again(std::span<const data::TokenId> prompt,
                             std::span<const data::TokenId> tokens) {
  std::vector<data::TokenId> text(prompt.begin(), prompt.end());
  text.insert(text.end(), tokens.begin(), tokens.end());
  const auto kept = static_cast<std::size_t>(decoder_.positions() / 2);
  decoder_.rewind(0);
  return decoder_.prefill(std::span(text).last(kept));
}

void Generator::check_prompt(std::span<const data::TokenId> prompt) const {
  if (static_cast<std::int64_t>(prompt.size()) < decoder_.positions()) return;
  fail(ErrorCode::kInvalidArgument,
       "the prompt has {} tokens and leaves no room to continue it: the context holds {}; take a "
       "shorter prompt",
       prompt.size(), decoder_.positions());
}

Generation Generator::run(const GenerateOptions& options, const Listen& listen) {
  nn::Sampler sampler(options.sampling);
  const auto prompt = options.prompt.empty() ? beginning() : options.prompt;
  check_prompt(prompt);
  const auto length = static_cast<std::int64_t>(prompt.size());
  Generation made;
  data::Utf8Stream characters;
  const auto tell = [&](const std::string& piece) {
    made.text += piece;
    return piece.empty() || !listen || listen(piece);
  };
  decoder_.rewind(0);
  auto begin = SteadyClock::now();
  Tensor logits;
  if (options.max_new_tokens > 0) logits = decoder_.prefill(prompt);
  made.prompt_seconds = seconds_since(begin);
  begin = SteadyClock::now();
  const auto known = static_cast<std::size_t>(tokenizer_.vocabulary());
  for (std::int64_t count = 0; count < options.max_new_tokens; ++count) {
    // A model may have more tokens than are in use, to round their number up.
    const HostView view(logits);
    const auto next_logits = view.as<float>().first(known);
    const auto position = static_cast<std::uint64_t>(length + count);
    const data::TokenId token = sampler.sample(next_logits, position);
    if (options.stop_at_end_of_text && ends_text(token)) {
      made.end = Generation::End::kEndOfText;
      break;
    }
    made.tokens.push_back(token);
    std::string bytes;
    tokenizer_.decode({&token, 1}, bytes);
    if (!tell(characters.add(bytes))) {
      made.end = Generation::End::kStopped;
      break;
    }
    if (count + 1 == options.max_new_tokens) break;
    if (decoder_.position() < decoder_.positions()) {
      logits = decoder_.step(token);
    } else if (options.slides && decoder_.positions() > 1) {
      logits = read_again(prompt, made.tokens);
    } else {
      made.end = Generation::End::kContext;
      break;
    }
  }
  made.seconds = seconds_since(begin);
  tell(characters.finish());
  return made;
}

}  // namespace lockstep::train
