#include "lockstep/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
// Other programs have files of that name, too. Folders of earlier versions hold this very text.
constexpr std::string_view kMark = "This is a run of lockstep; who trains here holds this file.\n";
constexpr std::string_view kOurs[] = {kLock,        "config.toml",   "checkpoints",
                                      "data",       "metrics.jsonl", "samples.jsonl",
                                      "trace.json", "report.html",   "tensorboard"};

bool is_marked(const fs::path& lock) {
  std::error_code none;
  if (!fs::is_regular_file(lock, none) || fs::file_size(lock, none) != kMark.size()) return false;
  std::ifstream file(lock, std::ios::binary);
  std::string text(kMark.size(), '\0');
  return file.read(text.data(), static_cast<std::streamsize>(text.size())) && text == kMark;
}

// A process may have been killed before it wrote the mark: then nothing else is there yet either.
bool is_ours(const fs::path& path) {
  if (is_marked(path / kLock)) return true;
  std::error_code error;
  if (!fs::is_regular_file(path / kLock, error) || fs::file_size(path / kLock, error) != 0) {
    return false;
  }
  for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::find(std::begin(kOurs), std::end(kOurs), name) == std::end(kOurs)) return false;
  }
  return !error;
}

void write_mark(int lock) {
  // Without it the names of the files will have to do.
  [[maybe_unused]] const auto written = ::pwrite(lock, kMark.data(), kMark.size(), 0);
}

void make_run_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error || !fs::is_directory(path)) {
    fail(ErrorCode::kSystem, "cannot make the run's folder run.dir = {}: {}", path.string(),
         error ? error.message() : "a file of that name exists");
  }
}

}  // namespace

RunFolder::RunFolder(const fs::path& path) : path_(path) {
  if (path.empty()) fail(ErrorCode::kInvalidArgument, "run.dir is empty; name a folder");
  std::error_code error;
  was_there_ = fs::is_directory(path, error);
  is_new_ = !was_there_ || fs::is_empty(path, error);
  if (!is_new_ && !is_ours(path)) {
    fail(ErrorCode::kInvalidArgument,
         "run.dir = {} holds files that lockstep did not write; choose another folder",
         path.string());
  }
  make_run_folder(path);
  const std::string lock = (path / kLock).string();
  lock_ = UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock_.get() < 0) fail_errno("cannot write to the run's folder: " + lock, errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) fail_errno("cannot lock " + lock, errno);
    fail(ErrorCode::kInvalidArgument,
         "another process is training in run.dir = {}; wait for it, or choose another folder",
         path.string());
  }
  write_mark(lock_.get());
}

RunFolder::~RunFolder() {
  if (!is_new_) return;
  std::error_code ignored;
  fs::remove_all(was_there_ ? data() : path_, ignored);
  fs::remove(path_ / kLock, ignored);
}

data::NoTexts RunFolder::no_texts() { return {.name = "the folder of a run", .are_in = is_ours}; }

void RunFolder::write_config(std::string_view toml) {
  write_file(config_of(path_), toml);
  is_new_ = false;
}

}  // namespace lockstep::train
