// The stack of a process on request, by a signal: for a process that hangs.
#pragma once

#include <string>

namespace lockstep {

// The signal that asks for it. It ends a process that has not called the function below.
int stack_signal();

// From then on the signal makes this process write `title` and the stack of the thread that gets
// it to standard error, and continue. Once per process.
void print_stack_on_signal(const std::string& title);

}  // namespace lockstep
