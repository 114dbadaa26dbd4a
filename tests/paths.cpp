#include "tests/paths.h"

namespace lockstep {

std::string in_sources(const std::string& path) { return LOCKSTEP_SOURCE_DIR "/" + path; }

std::string in_build(const std::string& path) { return LOCKSTEP_BINARY_DIR "/" + path; }

}  // namespace lockstep
