// Requests for another number of ranks of an elastic job that runs: `lockstep resize` puts a file
// into the run's folder, and the launcher of the job looks for it.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

std::filesystem::path resize_path(const std::filesystem::path& run);

// The launcher's side: takes a request, if there is one; nothing for a file that has no number. /
// Answers it, with a sentence for the one who asked.
std::optional<int> take_resize_request(const std::filesystem::path& file);
void answer_resize_request(const std::filesystem::path& file, bool accepted,
                           const std::string& sentence);

// Asks, and waits for the answer: its sentence. Throws Error(kInvalidArgument) with it where the
// job refuses, and where no job answers in time.
std::string request_ranks(const std::filesystem::path& run, int ranks,
                          std::chrono::milliseconds timeout);

}  // namespace lockstep
