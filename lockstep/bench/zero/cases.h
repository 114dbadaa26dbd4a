// The cases, each in the file of its name.
#pragma once

#include "lockstep/bench/data_parallel/report.h"
#include "lockstep/bench/data_parallel/run_cases.h"
#include "lockstep/bench/data_parallel/session.h"

namespace lockstep::bench::zero {

// Stages 1 to 3 against data parallelism that shards nothing.
data_parallel::CaseReport run_stages(data_parallel::Session& session);
// Stage 3 against PyTorch's FSDP2.
data_parallel::CaseReport run_fsdp(data_parallel::Session& session);
// The stall of a run by checkpoints that are written in the background, or between steps.
data_parallel::CaseReport run_saves(data_parallel::Session& session);
// Stage 2 with a mirror of every shard in another rank's memory, against none.
data_parallel::CaseReport run_mirror(data_parallel::Session& session);

// What the cases have in common: steps, in words; a setting of a stage; columns with memory.
std::string steps_in_words(const data_parallel::Session& session,
                           const std::vector<std::string>& model);
std::string stage_name(int stage);
data_parallel::Turn turn_of_stage(data_parallel::Session& session, std::string_view name, int stage,
                                  const std::vector<std::string>& model);
std::vector<data_parallel::Column> columns_with_memory();
data_parallel::Row row_with_memory(const data_parallel::Turn& turn);

}  // namespace lockstep::bench::zero
