#include "lockstep/launch/resize_request.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/system/deadline.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAccepted = "accepted ";
constexpr std::string_view kRefused = "refused ";

fs::path answer_path(const fs::path& file) { return file.string() + ".answer"; }

// And removes it. Nothing where there is no such file, or none that can be read.
std::optional<std::string> take_text(const fs::path& path) {
  constexpr std::size_t kMost = 4096;
  std::error_code none;
  if (!fs::exists(path, none)) return std::nullopt;
  std::optional<std::string> text;
  try {
    text = read_file(path, kMost);
  } catch (const Error&) {
    // A folder, a pipe, a file of another program.
  }
  fs::remove(path, none);
  return text;
}

}  // namespace

fs::path resize_path(const fs::path& run) { return run / "resize"; }

std::optional<int> take_resize_request(const fs::path& file) {
  const auto text = take_text(file);
  if (!text) return std::nullopt;
  int ranks = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), ranks);
  if (error != std::errc()) return std::nullopt;
  return ranks;
}

void answer_resize_request(const fs::path& file, bool accepted, const std::string& sentence) {
  try {
    write_file(answer_path(file), std::string(accepted ? kAccepted : kRefused) + sentence);
  } catch (const Error&) {
    // The one who asked says that nobody answered.
  }
}

std::string request_ranks(const fs::path& run, int ranks, std::chrono::milliseconds timeout) {
  const fs::path file = resize_path(run);
  take_text(answer_path(file));  // of a request that nobody waited for
  write_file(file, fmt::format("{}\n", ranks));
  constexpr std::chrono::milliseconds kPause{20};
  for (const Deadline end = deadline_in(timeout); !has_passed(end);
       std::this_thread::sleep_for(kPause)) {
    const auto answer = take_text(answer_path(file));
    if (!answer) continue;
    if (answer->starts_with(kAccepted)) return answer->substr(kAccepted.size());
    fail(ErrorCode::kInvalidArgument, "{}",
         answer->starts_with(kRefused) ? answer->substr(kRefused.size()) : *answer);
  }
  take_text(file);
  fail(ErrorCode::kInvalidArgument,
       "no elastic job answers in {}: it is for a job that runs, started by lockstep train --ranks "
       "MIN:MAX on this machine",
       run.string());
}

}  // namespace lockstep
