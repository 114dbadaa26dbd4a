// Must not compile, and the compiler's message must list the types that collectives move.
#include <string>
#include <vector>

#include "lockstep/comm/call.h"

lockstep::Call sum_of_words(std::vector<std::string>& words) { return lockstep::all_reduce(words); }
