// `lockstep bench zero`: the cost and gain of sharded states.
//
// Made of cases as `lockstep bench data-parallel` is (bench/data_parallel/bench_data_parallel.h),
// by runs of `lockstep train` and what these write about themselves. Memory is the most that rank 0
// has had in RAM (VmHWM), counted from its first step on, as at the peer; beside the peer also its
// proportional part, watched from outside (bench/memory_watch.h), by which the two are compared.
#pragma once

#include <string_view>
#include <vector>

#include "lockstep/bench/data_parallel/bench_data_parallel.h"

namespace lockstep::bench {

// Every case's name, in the order in which they are run.
std::vector<std::string_view> zero_cases();

// As run_data_parallel(), of the same settings.
bool run_zero(const DataParallelBench& bench);

}  // namespace lockstep::bench
