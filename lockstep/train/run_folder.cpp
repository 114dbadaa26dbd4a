#include "lockstep/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"

namespace lockstep::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLock = "lock";
// Other programs have files of that name, too. Folders of earlier versions hold this very text.
constexpr std::string_view kMark = "This is a run of lockstep; who trains here holds this file.\n";
constexpr std::string_view kOurs[] = {kLock,         "config.toml",   "checkpoints",   "data",
                                      "data.staged", "metrics.jsonl", "samples.jsonl", "trace.json",
                                      "report.html", "tensorboard",   "facts.json",    "log.jsonl",
                                      "ranks.json"};

bool is_marked(const fs::path& lock) {
  std::error_code none;
  if (!fs::is_regular_file(lock, none) || fs::file_size(lock, none) != kMark.size()) return false;
  std::ifstream file(lock, std::ios::binary);
  std::string text(kMark.size(), '\0');
  return file.read(text.data(), static_cast<std::streamsize>(text.size())) && text == kMark;
}

// Only the owner may read the lock: a user who can open a file can lock it (flock) and keep the
// owner from training.
constexpr mode_t kLockMode = S_IRUSR | S_IWUSR;

// A process may have been killed before it wrote the mark: then nothing else is there yet either.
// Of a lock that others may not read they know its size. In both cases the names of the files
// decide.
bool is_ours(const fs::path& path) {
  const fs::path lock = path / kLock;
  if (is_marked(lock)) return true;
  std::error_code error;
  if (!fs::is_regular_file(lock, error)) return false;
  const std::uintmax_t bytes = fs::file_size(lock, error);
  const bool hidden = bytes == kMark.size() && ::access(lock.c_str(), R_OK) != 0;
  if (bytes != 0 && !hidden) return false;
  for (fs::directory_iterator at(path, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (std::find(std::begin(kOurs), std::end(kOurs), name) == std::end(kOurs)) return false;
  }
  return !error;
}

// is_locked() holds the lock for a moment.
bool take_lock(int lock) {
  constexpr int kLockAttempts = 40;
  constexpr auto kBetweenAttempts = std::chrono::milliseconds(5);
  for (int i = 0; i < kLockAttempts; ++i) {
    if (::flock(lock, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno != EWOULDBLOCK) return false;
    std::this_thread::sleep_for(kBetweenAttempts);
  }
  errno = EWOULDBLOCK;
  return false;
}

void write_mark(int lock) {
  // Without it the names of the files will have to do.
  [[maybe_unused]] const auto written = ::pwrite(lock, kMark.data(), kMark.size(), 0);
}

// Moves every file of a folder into another, in place of one of its name.
void move_files(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (!fs::is_directory(from, error)) return;
  std::vector<fs::path> files;
  for (fs::directory_iterator at(from, error); !error && at != fs::directory_iterator();
       at.increment(error)) {
    files.push_back(at->path());
  }
  if (!error) fs::create_directories(to, error);
  for (const fs::path& file : files) {
    if (!error) fs::rename(file, to / file.filename(), error);
  }
  if (!error) fs::remove(from, error);
  if (error)
    fail_errno(fmt::format("cannot move {} to {}", from.string(), to.string()), error.value());
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
  lock_ = UniqueFd(::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kLockMode));
  if (lock_.get() < 0) fail_errno("cannot write to the run's folder: " + lock, errno);
  // One that an earlier version made may be open to others; only its owner can change that.
  [[maybe_unused]] const int changed = ::fchmod(lock_.get(), kLockMode);
  if (!take_lock(lock_.get())) {
    if (errno != EWOULDBLOCK) fail_errno("cannot lock " + lock, errno);
    fail(ErrorCode::kInvalidArgument,
         "another process is training in run.dir = {}; wait for it, or choose another folder",
         path.string());
  }
  if (!is_marked(lock)) write_mark(lock_.get());
}

RunFolder::~RunFolder() { leave(); }

void RunFolder::leave() const noexcept {
  std::error_code ignored;
  fs::remove_all(staged_data_of(path_), ignored);
  if (!is_new_) return;
  fs::remove_all(was_there_ ? data() : path_, ignored);
  fs::remove(path_ / kLock, ignored);
}

bool RunFolder::is_run(const fs::path& path) { return is_ours(path); }

std::optional<bool> RunFolder::is_locked(const fs::path& path) {
  const UniqueFd lock(::open((path / kLock).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (lock.get() < 0) return errno == ENOENT ? std::optional(false) : std::nullopt;
  if (::flock(lock.get(), LOCK_SH | LOCK_NB) == 0) return false;
  return errno == EWOULDBLOCK ? std::optional(true) : std::nullopt;
}

data::NoTexts RunFolder::no_texts() { return {.name = "the folder of a run", .are_in = is_ours}; }

void RunFolder::begin(std::string_view toml) {
  move_files(staged_data_of(path_), data());
  write_file(config_of(path_), toml);
  is_new_ = false;
}

}  // namespace lockstep::train
