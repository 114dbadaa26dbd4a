#include "lockstep/train/observe/run_status.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/train/observe/run_record.h"

namespace lockstep::train {

std::optional<RunStatus> read_status(const std::filesystem::path& folder) {
  using StatusJson = nlohmann::ordered_json;
  const std::filesystem::path path = facts_path(folder);
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return std::nullopt;
  const auto json = StatusJson::parse(read_file(path), nullptr, false);
  try {
    const StatusJson& ended = json.at("ended");
    return RunStatus{.status = json.at("status").get<std::string>(),
                     .name = json.at("name").get<std::string>(),
                     .model = json.at("model").get<std::string>(),
                     .parameters = json.at("parameters").get<std::uint64_t>(),
                     .steps = json.at("steps").get<std::int64_t>(),
                     .started = json.at("started").get<std::int64_t>(),
                     .resumed = json.at("resumed").get<std::int64_t>(),
                     .ended = ended.is_null() ? 0 : ended.get<std::int64_t>(),
                     .message = json.at("message").get<std::string>()};
  } catch (const StatusJson::exception& error) {
    fail(ErrorCode::kProtocol, "{} is damaged: {}", path.string(), error.what());
  }
}

}  // namespace lockstep::train
