#include "lockstep/train/observe/status_file.h"

#include <ctime>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/train/observe/observer.h"

namespace lockstep::train {
namespace {

using StatusJson = nlohmann::ordered_json;

constexpr std::string_view kRunning = "running";

std::filesystem::path status_path(const std::filesystem::path& folder) {
  return folder / "status.json";
}

std::string format_status(const RunStatus& status) {
  StatusJson json{{"status", status.status},  {"name", status.name},
                  {"model", status.model},    {"parameters", status.parameters},
                  {"steps", status.steps},    {"started", status.started},
                  {"resumed", status.resumed}};
  if (status.ended > 0) json["ended"] = status.ended;
  if (!status.message.empty()) json["message"] = status.message;
  // Names and messages may be any bytes.
  return json.dump(2, ' ', false, StatusJson::error_handler_t::replace) + "\n";
}

class StatusFile : public RunObserver {
 public:
  void begin(const RunFacts& facts) override {
    folder_ = facts.folder;
    const std::int64_t now = std::time(nullptr);
    status_ = {.status = std::string(kRunning),
               .name = facts.name,
               .model = facts.model,
               .parameters = facts.parameters,
               .steps = facts.steps,
               .started = now,
               .resumed = now};
    try {
      if (const auto before = read_status(folder_)) status_.started = before->started;
    } catch (const Error& error) {
      log_warn("{}; it is written anew", error.what());
    }
    write_file(status_path(folder_), format_status(status_));
  }
  void step(const StepRecord&) override {}
  void sample(std::int64_t, const std::string&) override {}
  void notice(const std::string&) override {}
  void warning(const std::string&) override {}
  void end(const RunEnd& end) override {
    constexpr std::string_view kEnds[] = {"finished", "stopped", "failed"};
    status_.status = kEnds[static_cast<std::size_t>(end.reason)];
    status_.message = end.message;
    status_.ended = std::time(nullptr);
    try {
      write_file(status_path(folder_), format_status(status_));
    } catch (const Error& error) {
      log_warn("{}; it says that the run was killed", error.what());
    }
  }

 private:
  std::filesystem::path folder_;
  RunStatus status_;
};

}  // namespace

std::optional<RunStatus> read_status(const std::filesystem::path& folder) {
  std::error_code none;
  if (!std::filesystem::exists(status_path(folder), none)) return std::nullopt;
  const std::string path = status_path(folder).string();
  const std::string text = read_file(path);
  const auto json = StatusJson::parse(text, nullptr, false);
  try {
    RunStatus status{.status = json.at("status").get<std::string>(),
                     .name = json.at("name").get<std::string>(),
                     .model = json.at("model").get<std::string>(),
                     .parameters = json.at("parameters").get<std::uint64_t>(),
                     .steps = json.at("steps").get<std::int64_t>(),
                     .started = json.at("started").get<std::int64_t>(),
                     .resumed = json.at("resumed").get<std::int64_t>(),
                     .ended = json.value("ended", std::int64_t{0}),
                     .message = json.value("message", std::string())};
    return status;
  } catch (const StatusJson::exception& error) {
    fail(ErrorCode::kProtocol, "{} is damaged: {}", path, error.what());
  }
}

std::unique_ptr<RunObserver> make_status_file() { return std::make_unique<StatusFile>(); }

}  // namespace lockstep::train
