// Where tests find the sources and what was built. Functions and not macros: the definitions behind
// them would stand on every compiler's command line, and no two clones could share what ccache
// keeps.
#pragma once

#include <string>

namespace lockstep {

std::string in_sources(const std::string& path);  // in_sources("docs/plan.md")
std::string in_build(const std::string& path);    // in_build("lockstep"), the command

}  // namespace lockstep
