#include "lockstep/ops/cuda/linear/algorithm_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/config/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/text/hex.h"
#include "lockstep/base/text/text.h"

namespace lockstep::cuda {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 24;

// Locks out other writers, if the file system supports it. After a second it continues without the
// lock, and a line may then get lost.
UniqueFd lock_beside(const std::filesystem::path& path) {
  UniqueFd lock(::open((path.string() + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  for (int attempt = 0; lock && attempt < 50; ++attempt) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return lock;
}

std::optional<KeptAlgorithm> parse(std::string_view hex, std::string_view time) {
  const auto bytes = from_hex(hex);
  KeptAlgorithm one;
  const auto [end, error] =
      std::from_chars(time.data(), time.data() + time.size(), one.microseconds);
  if (!bytes || bytes->size() != one.bytes.size() || error != std::errc{} ||
      end != time.data() + time.size() || !std::isfinite(one.microseconds)) {
    return std::nullopt;
  }
  std::copy(bytes->begin(), bytes->end(), one.bytes.begin());
  return one;
}

}  // namespace

AlgorithmFile::AlgorithmFile(std::filesystem::path path) : path_(std::move(path)) { read(); }

void AlgorithmFile::read() {
  std::error_code error;
  if (path_.empty() || !std::filesystem::is_regular_file(path_, error)) return;
  std::string content;
  try {
    content = read_file(path_, kMostBytes);
  } catch (const Error&) {
    return;
  }
  for (const std::string_view line : split_text(content, '\n')) {
    const std::vector<std::string_view> fields = split_text(line, '\t');
    if (fields.size() != 3 || fields[0].empty()) continue;
    if (const auto one = parse(fields[1], fields[2])) kept_[std::string(fields[0])] = *one;
  }
}

std::optional<KeptAlgorithm> AlgorithmFile::find(const std::string& key) const {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return std::nullopt;
  return found->second;
}

KeptAlgorithm AlgorithmFile::keep(const std::string& key, const KeptAlgorithm& found) {
  if (path_.empty()) return kept_.try_emplace(key, found).first->second;
  std::error_code error;
  std::filesystem::create_directories(path_.parent_path(), error);
  const UniqueFd lock = lock_beside(path_);
  read();
  const auto [place, is_new] = kept_.try_emplace(key, found);
  if (!is_new) return place->second;
  std::string content;
  for (const auto& [name, one] : kept_) {
    content += fmt::format("{}\t{}\t{:.2f}\n", name, to_hex(one.bytes), one.microseconds);
  }
  try {
    write_file(path_, content);
  } catch (const Error&) {
  }
  return found;
}

std::filesystem::path AlgorithmFile::path_for(std::string_view gpu, std::size_t version) {
  const EnvironmentLookup environment = process_environment();
  std::filesystem::path folder;
  if (const auto cache = environment("XDG_CACHE_HOME")) {
    folder = *cache;
  } else if (const auto home = environment("HOME")) {
    folder = std::filesystem::path(*home) / ".cache";
  } else {
    return {};
  }
  std::string word;
  for (const char c : gpu) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    word += plain ? c : '-';
  }
  return folder / "lockstep" / fmt::format("cublaslt-{}-{}.txt", word, version);
}

}  // namespace lockstep::cuda
