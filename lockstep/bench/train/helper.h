// A process of the training bench that answers requests line by line.
//
// A helper that ends, answers with an error or times out is ended and stays failed; the bench
// continues without it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/system/deadline.h"
#include "lockstep/bench/connection.h"
#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/process.h"

namespace lockstep::bench {

class Helper {
 public:
  // Starts the program and waits until it has connected and said a first line. Throws only when
  // interrupted.
  Helper(std::string name, Program program, const Interrupt& interrupt, Deadline deadline);

  const std::string& name() const { return name_; }
  // A JSON object.
  const std::string& greeting() const { return greeting_; }
  // Why it has failed: a line, then its last output. Empty while it works.
  const std::string& failure() const { return failure_; }

  // The answer, a JSON object; nothing when it failed. Throws only when interrupted.
  std::optional<std::string> ask(std::string_view request, Deadline deadline);

 private:
  bool wait_for(int fd, Deadline deadline);
  std::optional<std::string> next_line(Deadline deadline);
  void fail_with(std::string_view why);

  std::string name_;
  const Interrupt& interrupt_;
  std::unique_ptr<Process> process_;
  std::unique_ptr<Connection> connection_;  // none before it has connected and after a failure
  std::string greeting_;
  std::string failure_;
};

// The other side: connects to the bench that started this process, greets, and answers its
// requests until it closes the connection. An Error becomes an answer {"error": ...}.
void serve_helper(std::string_view greeting,
                  const std::function<std::string(std::string_view request)>& answer);

}  // namespace lockstep::bench
