#include "lockstep/bench/data_parallel/bench_data_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/file.h"
#include "lockstep/base/text.h"
#include "lockstep/bench/data_parallel/cases.h"
#include "lockstep/bench/interrupt.h"

namespace lockstep::bench {
namespace {

struct NamedCase {
  std::string_view name;
  data_parallel::CaseReport (*run)(data_parallel::Session&);
};
constexpr NamedCase kCases[] = {{"scaling", data_parallel::run_scaling},
                                {"overlap", data_parallel::run_overlap},
                                {"buckets", data_parallel::run_buckets},
                                {"servers", data_parallel::run_servers},
                                {"stragglers", data_parallel::run_stragglers},
                                {"compression", data_parallel::run_compression},
                                {"tree", data_parallel::run_tree}};

void check_cases(const std::vector<std::string>& chosen) {
  const std::vector<std::string_view> names = data_parallel_cases();
  for (const std::string& name : chosen) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    fail(ErrorCode::kInvalidArgument, "--case: there is no case {}{}; there are {}", name,
         did_you_mean(name, names), fmt::join(names, ", "));
  }
}

}  // namespace

std::vector<std::string_view> data_parallel_cases() {
  std::vector<std::string_view> names;
  for (const NamedCase& one : kCases) names.push_back(one.name);
  return names;
}

bool run_data_parallel(const DataParallelBench& bench) {
  check_cases(bench.cases);
  data_parallel::Session::options_of(bench.settings);  // throws for a key that does not exist
  if (!bench.json.empty()) check_can_write(bench.json);
  const Interrupt interrupt;
  data_parallel::Session session(bench, interrupt);
  std::vector<data_parallel::CaseReport> reports;
  for (const NamedCase& one : kCases) {
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
                      [](const data_parallel::CaseReport& report) { return report.failed(); });
}

}  // namespace lockstep::bench
