// Makes text of unknown origin safe to print.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// `text` as UTF-8 that a terminal or a page can show: every control character but tab and line
// feed, and every byte that is not valid UTF-8, becomes U+FFFD (a carriage return before a line
// feed is removed). The result contains no escape sequences.
std::string printable(std::string_view text);

}  // namespace lockstep
