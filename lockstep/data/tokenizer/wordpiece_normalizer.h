// BERT's normalizer.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::data {

struct BertNormalizer {
  bool clean_text = true;            // no controls; all white space becomes a blank
  bool handle_chinese_chars = true;  // blanks around each ideograph
  bool strip_accents = true;
  bool lowercase = true;

  // Bytes that are no UTF-8 become U+FFFD, which clean_text throws away.
  std::string operator()(std::string_view text) const;
};

}  // namespace lockstep::data
