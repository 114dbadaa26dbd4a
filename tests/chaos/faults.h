// What goes wrong in a job: killed ranks, lost nodes, full disks, strangers.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tests/chaos/job.h"

namespace lockstep::chaos {

using Random = std::mt19937;

struct Fault {
  std::string name;
  std::function<bool(const Kind&)> fits;
  // Does it to a job that trains; returns what exactly it did.
  std::function<std::string(Job&, Random&)> inject;
  // The job ends with an error or as it was asked to, and continues when the same command is
  // started again; before that this repairs what was broken. Nothing: the job continues by itself.
  std::function<void(Job&)> repair = {};
  bool needs_small_disk = false;
};

// Those that can be had here. `missing` gets a line about each other one.
std::vector<Fault> faults(const Place& place, std::vector<std::string>& missing);

}  // namespace lockstep::chaos
