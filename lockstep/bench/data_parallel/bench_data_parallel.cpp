#include "lockstep/bench/data_parallel/bench_data_parallel.h"

#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench {
namespace {

constexpr data_parallel::NamedCase kDataParallelCases[] = {
    {"scaling", data_parallel::run_scaling},
    {"overlap", data_parallel::run_overlap},
    {"buckets", data_parallel::run_buckets},
    {"servers", data_parallel::run_servers},
    {"stragglers", data_parallel::run_stragglers},
    {"compression", data_parallel::run_compression},
    {"tree", data_parallel::run_tree},
    {"bert", data_parallel::run_bert}};

}  // namespace

std::vector<std::string_view> data_parallel_cases() {
  return data_parallel::names_of(kDataParallelCases);
}

bool run_data_parallel(const DataParallelBench& bench) {
  return data_parallel::run_cases(bench, kDataParallelCases);
}

}  // namespace lockstep::bench
