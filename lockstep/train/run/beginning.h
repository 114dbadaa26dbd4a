// What a run reports when it begins: settings and data without effect, choices, where it continues.
#pragma once

#include <cstdint>
#include <string>

#include "lockstep/ops/ops.h"
#include "lockstep/train/dataset/batch_source.h"
#include "lockstep/train/run/audience.h"
#include "lockstep/train/run/owed.h"
#include "lockstep/train/run/resolve.h"

namespace lockstep::train {

struct Beginning {
  const ResolvedRun& resolved;
  const Audience& audience;
  const Dataset& dataset;
  const BatchSource& source;
  const Ops& ops;
  const std::string& changed_settings;  // since the checkpoint
  const std::string& changed_data;
  bool mirrors_in_vain;  // with survive.mirror, but nothing starts its ranks again
  const Owed& owed;
  std::int64_t done;      // steps
  std::string states_of;  // where the states in memory come from; empty: there were none
  bool resumed;
};
void tell_beginning(const Beginning& run);
// Of a run that has done all its steps.
std::string nothing_to_do(const RunOptions& options, std::int64_t done);
// Of a run that ended before train.steps, and why.
std::string stopped_early(std::int64_t done, const std::string& why);

}  // namespace lockstep::train
