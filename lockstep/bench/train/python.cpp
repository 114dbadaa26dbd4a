#include "lockstep/bench/train/python.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "lockstep/base/system/deadline.h"
#include "lockstep/bench/process.h"

namespace lockstep::bench {
namespace {

constexpr const char* kVariable = "LOCKSTEP_PYTHON";
constexpr std::chrono::minutes kImportTimeout{2};  // the first import reads much from the disk
constexpr const char* kAdvice =
    "./dev peers installs the peers into build/peers; or name a Python that has it by --python "
    "PATH "
    "or LOCKSTEP_PYTHON";

// What is wrong with it; empty: it can import the module.
std::string problem_of(const std::string& program, const std::string& module) {
  Process process({{program, "-c", "import " + module}, {}});
  if (!process.wait_until(deadline_in(kImportTimeout))) return "does not answer";
  if (process.how_it_ended() == "exit code 0") return "";
  return fmt::format("cannot import {}: {}", module, process.last_words());
}

}  // namespace

Python find_python(const std::string& chosen, const std::filesystem::path& command,
                   const std::string& module) {
  const char* variable = std::getenv(kVariable);
  const std::string named = !chosen.empty() ? chosen : variable != nullptr ? variable : "";
  if (!named.empty()) {
    const std::string problem = problem_of(named, module);
    if (problem.empty()) return {named, ""};
    return {"", fmt::format("{} {}; {}", named, problem, kAdvice)};
  }
  const auto built = command.parent_path().parent_path() / "peers" / "bin" / "python";
  for (const std::string& candidate : {built.string(), std::string("python3")}) {
    const bool is_path = candidate.find('/') != std::string::npos;
    if (is_path && ::access(candidate.c_str(), X_OK) != 0) continue;
    if (problem_of(candidate, module).empty()) return {candidate, ""};
  }
  return {"", fmt::format("no Python that can import {} was found; {}", module, kAdvice)};
}

}  // namespace lockstep::bench
