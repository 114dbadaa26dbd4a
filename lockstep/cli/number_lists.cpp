#include "lockstep/cli/number_lists.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"

namespace lockstep::cli {

std::vector<int> parse_numbers(std::string_view flag, std::string_view text, char separator,
                               std::string_view example) {
  std::vector<int> numbers;
  for (std::string_view part : split_text(text, separator)) {
    int number = 0;
    const std::string_view digits = trim(part);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < 1) {
      fail(ErrorCode::kInvalidArgument, "{} is '{}'; expected whole numbers from 1 up, like {}",
           flag, text, example);
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<int> parse_ranks(std::string_view text, int most) {
  std::vector<int> ranks;
  for (const int number : parse_numbers("--ranks", text, ',', "4 or 4,8,64")) {
    if (number > most) {
      fail(ErrorCode::kInvalidArgument, "--ranks is '{}'; {} are too many, up to {} are fine", text,
           number, most);
    }
    if (std::find(ranks.begin(), ranks.end(), number) == ranks.end()) ranks.push_back(number);
  }
  return ranks;
}

}  // namespace lockstep::cli
