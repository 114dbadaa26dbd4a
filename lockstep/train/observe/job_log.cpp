#include "lockstep/train/observe/job_log.h"

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/train/observe/run_record.h"

namespace lockstep::train {
namespace {

using LineJson = nlohmann::ordered_json;

constexpr int kSpareOutput = -1;  // as a rank in JobLog::lines_

std::string line_record(LineJson json) {
  // A line may be any bytes.
  return json.dump(-1, ' ', false, LineJson::error_handler_t::replace) + '\n';
}

std::uintmax_t bytes_of_log(const std::filesystem::path& path) {
  std::error_code none;
  const std::uintmax_t bytes = std::filesystem::file_size(path, none);
  return none ? 0 : bytes;
}

}  // namespace

JobLog::JobLog(const std::filesystem::path& folder)
    : path_(log_path(folder)), bytes_before_(bytes_of_log(path_)) {}

void JobLog::add_output(std::optional<int> rank, std::string_view line) {
  if (rank == 0) return write_held();
  const std::size_t count = ++lines_[rank.value_or(kSpareOutput)];
  if (count > kMostLines + 1) return;
  LineJson json = {{"time", time_of_event()}, {"event", "output"}};
  if (rank) json["rank"] = *rank;
  json["text"] = count > kMostLines ? "(its further lines are not recorded)"
                                    : std::string(line.substr(0, kLongestLine));
  add(line_record(std::move(json)));
}

void JobLog::add_launcher(std::string_view line) {
  add(line_record({{"time", time_of_event()},
                   {"event", "launcher"},
                   {"text", std::string(line.substr(0, kLongestLine))}}));
}

void JobLog::add(std::string record) {
  if (has_failed_) return;
  if (held_.size() < kMostHeld) held_.push_back(std::move(record));
  write_held();
}

bool JobLog::has_begun() const { return log_ || bytes_of_log(path_) > bytes_before_; }

void JobLog::write_held() {
  if (held_.empty() || has_failed_ || !has_begun()) return;
  try {
    if (!log_) log_ = AppendFile(path_);
    for (const std::string& record : held_) log_.append(record);
  } catch (const Error& error) {
    log_warn("{}; what ranks write is not recorded any more", error.what());
    has_failed_ = true;
  }
  held_.clear();
}

}  // namespace lockstep::train
