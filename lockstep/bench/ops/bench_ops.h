// Times the typical case of every operation and sets it against the machine's floor.
//
// An operation cannot take less time than its bytes take to stream through memory, nor less than
// its multiplications take in registers; the longer of the two is its floor. Both rates are
// measured in the same run (bench/collectives/streaming.h, bench/ops/peak.h). bench/ops/gpu.h does
// the same on a GPU.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "lockstep/bench/collectives/streaming.h"
#include "lockstep/bench/ops/description.h"
#include "lockstep/bench/ops/peak.h"

namespace lockstep::bench {

struct OpsPlan {
  std::vector<OpDescription> ops;
  std::vector<DType> dtypes{DType::kF32};
  int threads = 1;
  double seconds = 0.5;        // for each operation and type
  std::filesystem::path json;  // empty: none
};

struct Floor {
  Streaming streaming;
  std::map<DType, Peak> peaks;
};

struct OpTime {
  std::string op;
  DType dtype = DType::kF32;
  std::string case_name;
  int threads = 0;
  double flops = 0;
  double bytes = 0;
  std::vector<double> samples;  // seconds of each call, sorted
  std::string problem;          // why there are none
  // On a GPU. A peer that was asked for the same has its samples or a problem.
  double bar_percent = 0;  // of a copy's bytes per second; 0: none
  std::vector<double> peer_samples;
  std::string peer_note;  // what the peer did differently
  std::string peer_problem;

  double median() const;
  bool is_compute_bound(const Floor& floor) const;
  double floor_seconds(const Floor& floor) const;
  double percent_of_floor(const Floor& floor) const;
  double percent_of_copy(const Floor& floor) const;
  double speed_up() const;  // the peer's median / ours
};

// Measures everything, printing each line as it comes; false where an operation is not there.
bool run_ops(const OpsPlan& plan);

// One operation; an Error of it is its problem. Calls go round between sets of tensors that
// caches cannot hold together.
OpTime time_op(Ops& ops, const OpDescription& description, DType dtype, const OpsPlan& plan,
               std::size_t more_than_caches);

std::string ops_heading(const std::string& implementation, const Floor& floor);
std::string ops_line(const OpTime& time, const Floor& floor);
std::string ops_json(const std::vector<OpTime>& times, const std::string& implementation,
                     const Floor& floor);

}  // namespace lockstep::bench
