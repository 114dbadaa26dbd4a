// Errors that are found when no caller is left to throw them to.
#pragma once

#include "lockstep/base/error.h"

namespace lockstep {

// Reports an error found while a communicator is being closed: logs it, and makes this process exit
// with 1 if main() returns 0.
void report_unheard(const Error& error);

}  // namespace lockstep
