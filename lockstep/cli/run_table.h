// A table of runs, for people and as JSON.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/train/run/run_summary.h"

namespace lockstep::cli {

// The columns by which runs are sorted and filtered, in their order.
std::vector<std::string_view> run_columns();

// By a column; a name that begins with '-' sorts downwards. Runs that have no value come last.
// Throws Error(kInvalidArgument) for an unknown column.
void sort_runs(std::vector<train::RunSummary>& runs, std::string_view column);

// Keeps those that pass "column=pattern" (* and ? stand for any text, any character),
// "column<number" or "column>number". Throws Error(kInvalidArgument) for anything else.
void filter_runs(std::vector<train::RunSummary>& runs, std::string_view condition);

// Folders are shown relative to `base`. Problems of runs are listed below the table.
std::string run_table(const std::vector<train::RunSummary>& runs,
                      const std::filesystem::path& base);
std::string run_table_json(const std::vector<train::RunSummary>& runs);

}  // namespace lockstep::cli
