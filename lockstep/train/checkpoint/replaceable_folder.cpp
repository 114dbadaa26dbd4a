#include "lockstep/train/checkpoint/replaceable_folder.h"

#include <string>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep::train {

namespace fs = std::filesystem;

void check_replaceable(const fs::path& path, const std::function<bool(std::string_view)>& is_ours) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "the name of the folder to write is empty");
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (fs::exists(status) && !fs::is_directory(status)) {
    fail(ErrorCode::kInvalidArgument, "{} is not a folder; name another", path.string());
  }
  if (!fs::exists(status)) {
    fs::create_directories(fs::absolute(path).lexically_normal().parent_path(), error);
    if (error) fail_errno(fmt::format("cannot make {}", path.string()), error.value());
    return;
  }
  fs::directory_iterator at(path, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_ours(name)) continue;
    fail(ErrorCode::kInvalidArgument,
         "{} holds '{}', which this command did not write; name another folder or an empty one",
         path.string(), name);
  }
  if (error) fail_errno(fmt::format("cannot read {}", path.string()), error.value());
}

}  // namespace lockstep::train
