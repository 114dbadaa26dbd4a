// Text that arrives in pieces of bytes and leaves in whole characters.
//
// A token may end in the middle of a character of UTF-8; who writes its bytes at once shows a
// broken letter. Here bytes of a character that has begun wait for the rest. What can no longer
// become a character (bytes that are no UTF-8) is let through as it is.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::data {

class Utf8Stream {
 public:
  // All that is complete now, what waited before included.
  std::string add(std::string_view bytes);
  // What is still waiting, when nothing more comes.
  std::string finish();

 private:
  std::string waiting_;  // at most 3 bytes
};

}  // namespace lockstep::data
