// facts.json and ranks.json of a run (train/observe/run_record.h), as far as programs compute with
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::live {

struct RunFigures {
  std::string model;
  std::int64_t workers = 1;
  double steps = 0;  // at which the run ends; 0, as in all: not known
  double step_tokens = 0;
  double step_flops = 0;
  double peak_flops = 0;
  double memory_bytes = 0;  // planned
};

struct RankFigures {
  struct Worker {
    bool known = false;
    double compute_ms = 0, communication_ms = 0, exposed_ms = 0, step_ms = 0;
  };
  std::int64_t ranks_of_worker = 1;
  std::optional<std::int64_t> straggler;  // a worker
  std::vector<Worker> workers;
};

// A JSON object as one line that can stand in a message, and in a page; empty: it is none.
std::string compact_object(std::string_view text);
// Of such a line; what is missing, or is no number, is as in an empty one.
RunFigures parse_figures(const std::string& facts);
RankFigures parse_ranks(const std::string& ranks);

}  // namespace lockstep::live
