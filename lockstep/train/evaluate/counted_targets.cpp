#include "lockstep/train/evaluate/counted_targets.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/ops/arguments.h"
#include "lockstep/tensor/host_view.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;

constexpr data::Special kNoText[] = {data::Special::kEndOfText, data::Special::kBegin,
                                     data::Special::kUnknown,   data::Special::kPadding,
                                     data::Special::kMask,      data::Special::kClassify,
                                     data::Special::kSeparate};

}  // namespace

namespace {

// Behind other text: some tokenizers drop a blank at the front. 0 for an id that no token has.
std::size_t bytes_behind_text(const data::Tokenizer& tokenizer, data::TokenId id) {
  const data::TokenId twice[] = {id, id};
  std::string once;
  std::string both;
  try {
    tokenizer.decode({&id, 1}, once);
    tokenizer.decode(twice, both);
  } catch (const Error&) {
    return 0;
  }
  return both.size() - once.size();
}

}  // namespace

std::vector<std::uint32_t> bytes_of_tokens(const data::Tokenizer& tokenizer) {
  if (tokenizer.kind() == "wordpiece" || tokenizer.kind() == "unigram") return {};
  std::vector<std::uint32_t> bytes;
  for (data::TokenId id = 0; id < tokenizer.vocabulary(); ++id) {
    const bool is_text = std::ranges::none_of(
        kNoText, [&](data::Special special) { return tokenizer.special(special) == id; });
    bytes.push_back(is_text ? static_cast<std::uint32_t>(bytes_behind_text(tokenizer, id)) : 0);
  }
  return bytes;
}

CorrectTargets::CorrectTargets(std::int64_t tokens, std::int64_t classes, DType dtype, Ops& ops)
    : tokens_(tokens),
      classes_(classes),
      dtype_(dtype),
      ops_(ops),
      logits_(static_cast<std::size_t>(tokens * classes) * size_of(dtype), ops.device()),
      wide_(static_cast<std::size_t>(std::min(tokens, kRowsAtOnce) * classes) * sizeof(float),
            ops.device()) {}

Tensor CorrectTargets::logits() const { return logits_.tensor(dtype_, {tokens_, classes_}); }

void CorrectTargets::add(const nn::Batch& batch) {
  const auto targets = batch.targets.as<const std::int32_t>();
  const auto classes = static_cast<std::size_t>(classes_);
  for (std::int64_t first = 0; first < tokens_; first += kRowsAtOnce) {
    const std::int64_t rows = std::min(kRowsAtOnce, tokens_ - first);
    const auto asked =
        targets.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(rows));
    if (std::ranges::all_of(asked, [](std::int32_t one) { return one == ops::kNoTarget; })) {
      continue;
    }
    const Tensor wide = wide_.tensor(DType::kF32, {rows, classes_});
    ops_.run(ops::Cast{.from = logits().slice(first, rows), .to = wide});
    ops_.synchronize();
    const HostView view(wide);
    const auto values = view.as<float>();
    for (std::size_t row = 0; row < asked.size(); ++row) {
      if (asked[row] == ops::kNoTarget) continue;
      const auto of_row = values.subspan(row * classes, classes);
      const auto likeliest = std::ranges::max_element(of_row) - of_row.begin();
      if (likeliest == asked[row]) ++count_;
    }
  }
}

}  // namespace lockstep::train
