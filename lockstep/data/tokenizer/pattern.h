// Regular expressions over UTF-8, as tokenizer.json has them.
//
// They are written for Oniguruma and run by PCRE2, translated where the two differ: \s is Unicode's
// white space, ^ and $ hold at every line. A pattern that takes too many steps on a text (nested
// repetition can take exponentially many) gives up with an error instead of running on.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace lockstep::data {

class Pattern {
 public:
  // `place` is what errors call it. Throws Error(kProtocol) for what is no pattern.
  Pattern(std::string_view regular_expression, std::string place);
  // A text to be found as it is.
  static Pattern literal(std::string_view text, std::string place);

  // The matches in `text`, which is UTF-8, from left to right; an empty one right behind another
  // match does not count. Throws Error(kInvalidArgument) where it takes too many steps. Any number
  // of threads may match at once.
  void for_each_match(std::string_view text,
                      const std::function<void(std::size_t begin, std::size_t end)>& visit) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
  std::string place_;
};

}  // namespace lockstep::data
