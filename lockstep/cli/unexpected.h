// What the command says where the system gives it less than it needs.
#pragma once

#include <exception>
#include <string>

namespace lockstep::cli {

// A sentence about an exception that no part of lockstep has put into words: memory or threads that
// the system refuses.
std::string describe_unexpected(const std::exception& error);

// From now on an exception that nobody can catch, as one in a thread or while threads are started,
// ends the process with such a sentence and exit code 1 instead of SIGABRT; and a file that grows
// beyond the limit (ulimit -f) is an error of whoever writes it instead of SIGXFSZ.
void end_in_sentences();

}  // namespace lockstep::cli
