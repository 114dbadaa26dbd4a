// report.html in a run's folder: the page of the run with its data in it.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "lockstep/train/observe/observer.h"

namespace lockstep::live {

std::filesystem::path report_path(const std::filesystem::path& folder);

// Writes the page when the run begins, twice a minute whatever the run is doing, and at its end;
// each time as a whole. A thread of its own reads what the other observers have written to the
// folder, so it comes after make_metrics_file(), make_sample_file() and make_run_record().
std::unique_ptr<train::RunObserver> make_report(
    std::chrono::milliseconds between_pages = std::chrono::seconds(30));

// The page of the run in that folder, as it is now.
std::string report_of(const std::filesystem::path& folder);

}  // namespace lockstep::live
