// A Python that has what a peer needs.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::bench {

struct Python {
  std::string program;  // empty: none was found
  std::string problem;  // why not, and what to do about it
};

// `chosen` where it is given; else what LOCKSTEP_PYTHON names; else the one that `./dev peers` made
// beside the folder of the build that `command` lies in; else python3. Only the last two are
// looked over; one that was named and cannot import the module is a problem.
Python find_python(const std::string& chosen, const std::filesystem::path& command,
                   const std::string& module = "torch");

}  // namespace lockstep::bench
