// A bench that consists of cases: which are run, what is printed and written as they are done.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "lockstep/bench/data_parallel/bench_data_parallel.h"
#include "lockstep/bench/data_parallel/report.h"
#include "lockstep/bench/data_parallel/session.h"

namespace lockstep::bench::data_parallel {

struct NamedCase {
  std::string_view name;
  CaseReport (*run)(Session&);
};

std::vector<std::string_view> names_of(std::span<const NamedCase> cases);

// Runs those that bench.cases names, or all; run_data_parallel() says the rest.
bool run_cases(const DataParallelBench& bench, std::span<const NamedCase> cases);

}  // namespace lockstep::bench::data_parallel
