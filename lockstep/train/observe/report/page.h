// report.html: a self-contained page about a run.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <vector>

#include "lockstep/train/observe/observer.h"
#include "lockstep/train/observe/report/history.h"
#include "lockstep/train/observe/sample_file.h"
#include "lockstep/train/observe/trace_file.h"

namespace lockstep::train {

struct Report {
  RunFacts facts;
  bool running = false;  // as of `ended`
  RunEnd end;            // where it is running: the seconds so far
  // Of this process.
  std::time_t began = 0;
  std::time_t ended = 0;
  RunHistory history;
  std::vector<Sample> samples;
  std::vector<std::string> messages;  // notices and warnings
  std::vector<RankTrace> trace;       // of each rank; none where it was not recorded
};

std::string report_page(const Report& report);

}  // namespace lockstep::train
