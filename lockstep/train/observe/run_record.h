// What a run's folder says of the run besides its steps: the figures that are known before the
// first one, what happened, and the costs of every rank. Programs that show runs read these files.
//
//   facts.json    RunFacts as one object, with what became of the process
//                 (train/observe/run_status.h); replaced by every process that continues the run,
//                 and when it ends
//   log.jsonl     a line per event, of all processes of the run
//   ranks.json    the last costs of every worker; replaced every two seconds; only with several
//
// A line of log.jsonl has "time", in seconds since 1970, and "event", one of
//
//   begin     first_step, steps, workers, strategy; host, pid_space and pid of the process
//   notice    step and text; so has warning
//   end       reason (finished, interrupted, failed), message, seconds, step
//
// A run whose last begin has no end behind it is still running, or was killed. The launcher of its
// ranks adds what they write (job_log.h).
//
//   {"time":1.7e9,"step":40,"steps":12,"ranks_of_worker":1,"straggler":{"rank":1,"times":1.5},
//    "workers":[{"compute_ms":8.1,"communication_ms":2.0,"exposed_ms":0.5,"step_ms":10.2,
//                "bytes_sent":4096,"staleness":0.0}, ...]}
//
// Numbers in ranks.json are means over the last `steps` steps. A worker that is not known is null.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/train/observe/observer.h"

namespace lockstep::train {

std::filesystem::path facts_path(const std::filesystem::path& folder);
std::filesystem::path log_path(const std::filesystem::path& folder);
std::filesystem::path ranks_path(const std::filesystem::path& folder);

// Of this process: its machine, and where its number counts. Two processes that agree in both see
// each other.
std::string host_name();
std::string pid_space();
// "time" of an event now.
double time_of_event();

// Writes the three files.
std::unique_ptr<RunObserver> make_run_record();

}  // namespace lockstep::train
