// Text of unknown origin made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// `text` as UTF-8 that a terminal or a page can show: every control character but tab and line
// feed, and every byte that is no UTF-8, becomes U+FFFD (a carriage return before a line feed goes
// away). What comes out moves no cursor, sets no colour and breaks no encoding.
std::string printable(std::string_view text);

}  // namespace lockstep
