// A reader of the live page's news (live/server.h), as a browser is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep::bench {

class PageReader {
 public:
  // Connects to "http://127.0.0.1:8080/?token=...". Throws Error(kSystem) where nobody answers.
  explicit PageReader(std::string_view link);

  // What the page shows of a run that is the only one.
  struct Shown {
    std::int64_t rows = 0;  // lines of metrics that were read
    std::int64_t step = 0;  // the last one
    bool reading = true;    // there is more
  };
  // The next status of the run; nothing until the deadline. Throws Error(kSystem) where the server
  // ends the connection.
  std::optional<Shown> next(Deadline deadline);

 private:
  bool receive(Deadline deadline);
  std::optional<std::string> next_line();

  UniqueFd socket_;
  std::string received_;  // of the answer, what is not decoded so far
  bool has_head_ = false;
  std::string text_;  // of the body, what is behind the last whole line
};

}  // namespace lockstep::bench
