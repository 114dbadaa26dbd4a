#include "lockstep/bench/zero/bench_zero.h"

#include "lockstep/bench/zero/cases.h"

namespace lockstep::bench {
namespace {

constexpr data_parallel::NamedCase kZeroCases[] = {{"stages", zero::run_stages},
                                                   {"fsdp", zero::run_fsdp},
                                                   {"saves", zero::run_saves},
                                                   {"mirror", zero::run_mirror}};

}  // namespace

std::vector<std::string_view> zero_cases() { return data_parallel::names_of(kZeroCases); }

bool run_zero(const DataParallelBench& bench) {
  return data_parallel::run_cases(bench, kZeroCases);
}

}  // namespace lockstep::bench
