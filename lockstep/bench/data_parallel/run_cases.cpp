#include "lockstep/bench/data_parallel/run_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/text.h"
#include "lockstep/bench/interrupt.h"

namespace lockstep::bench::data_parallel {
namespace {

void check_cases(const std::vector<std::string>& chosen, std::span<const NamedCase> cases) {
  const std::vector<std::string_view> names = names_of(cases);
  for (const std::string& name : chosen) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(ErrorCode::kInvalidArgument, "--case: unknown case {}{}; expected one of {}", name,
         did_you_mean(name, names), fmt::join(names, ", "));
  }
}

}  // namespace

std::vector<std::string_view> names_of(std::span<const NamedCase> cases) {
  std::vector<std::string_view> names;
  for (const NamedCase& one : cases) names.push_back(one.name);
  return names;
}

bool run_cases(const DataParallelBench& bench, std::span<const NamedCase> cases) {
  check_cases(bench.cases, cases);
  Session::options_of(bench.settings);  // throws for a key that does not exist
  if (!bench.json.empty()) check_can_write(bench.json);
  const Interrupt interrupt;
  Session session(bench, interrupt);
  std::vector<CaseReport> reports;
  for (const NamedCase& one : cases) {
    const auto& chosen = bench.cases;
    if (!chosen.empty() && std::find(chosen.begin(), chosen.end(), one.name) == chosen.end()) {
      continue;
    }
    reports.push_back(one.run(session));
    fmt::print("{}", to_text(reports.back()));
    std::fflush(stdout);
    // After each: what an interrupted bench has found is not lost.
    if (!bench.json.empty()) write_file(bench.json, to_json(reports));
    if (session.interrupted()) throw *session.interrupted();
  }
  return std::none_of(reports.begin(), reports.end(),
                      [](const CaseReport& report) { return report.failed(); });
}

}  // namespace lockstep::bench::data_parallel
