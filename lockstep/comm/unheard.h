// Errors that come to light when nobody is left to throw them at.
#pragma once

#include "lockstep/base/error.h"

namespace lockstep {

// Of a communicator that is being closed: logs the error, and makes this process exit with 1 where
// main() would return 0.
void report_unheard(const Error& error);

}  // namespace lockstep
