// What the command says where the system gives it less than it needs.
#pragma once

#include <exception>
#include <string>

namespace lockstep::cli {

// A sentence about an exception that no part of lockstep has put into words: memory or threads that
// the system refuses.
std::string describe_unexpected(const std::exception& error);

// From now on an exception that cannot be caught, as in a thread or while threads are started, ends
// the process with such a sentence and exit code 1 instead of SIGABRT. A write beyond the file size
// limit (ulimit -f) fails with an error instead of SIGXFSZ.
void end_in_sentences();

}  // namespace lockstep::cli
