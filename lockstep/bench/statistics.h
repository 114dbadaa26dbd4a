// The few statistics that a bench reports.
#pragma once

#include <span>
#include <vector>

namespace lockstep::bench {

// The value below which the fraction `q` of the samples lies, between neighbours by proportion.
// `sorted` is not empty.
double quantile(std::span<const double> sorted, double q);

// The geometric mean of positive numbers; 0 of none.
double geometric_mean(std::span<const double> values);

// The slowest rank of each call: samples[i] = max over ranks of seconds[rank][i].
std::vector<double> slowest_rank(std::span<const std::vector<double>> seconds);

}  // namespace lockstep::bench
