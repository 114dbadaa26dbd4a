// Runs one fuzz target: every file of its corpus, and then, with --seconds, mutations of them.
//
//   token_file_fuzz [--seconds N] [--seed S] FILE_OR_FOLDER...
//
// A target is a function with libFuzzer's signature that must return whatever the bytes are; it may
// throw and catch lockstep::Error inside, and nothing may leave it. What it was given when the
// process died (a sanitizer's report, a signal, an exception) is written to crash-TARGET in the
// working folder, to be given back as an argument.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// The sanitizers' runtime has it; a build without them does not.
extern "C" [[gnu::weak]] void __sanitizer_set_death_callback(void (*callback)());

namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<std::uint8_t>;

constexpr std::size_t kLongest = std::size_t{64} << 10;

// Looked at when everything else may be broken, so plain.
const std::uint8_t* current_data = nullptr;
std::size_t current_size = 0;
char crash_name[256];

void save_current() {
  if (current_data == nullptr) return;
  const int file = ::open(crash_name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0) return;
  for (std::size_t done = 0; done < current_size;) {
    const ssize_t written = ::write(file, current_data + done, current_size - done);
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  ::close(file);
  current_data = nullptr;
}

void save_and_die(int signal) {
  save_current();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void watch_for_death() {
  if (__sanitizer_set_death_callback != nullptr) {
    __sanitizer_set_death_callback(save_current);
    std::signal(SIGABRT, save_and_die);
    return;
  }
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    std::signal(signal, save_and_die);
  }
}

void run(const Bytes& input) {
  // A copy of exactly that size, so that the sanitizer detects a read behind the end.
  const Bytes copy(input.begin(), input.end());
  current_data = copy.data();
  current_size = copy.size();
  LLVMFuzzerTestOneInput(copy.data(), copy.size());
  current_data = nullptr;
}

// Small changes that tend to hurt: lengths that are huge or negative, things twice, things missing.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  Bytes mutated(const std::vector<Bytes>& corpus) {
    Bytes bytes = corpus[below(corpus.size())];
    for (std::size_t left = 1 + below(4); left > 0; --left) change(bytes, corpus);
    if (bytes.size() > kLongest) bytes.resize(kLongest);
    return bytes;
  }

 private:
  std::size_t below(std::size_t limit) { return limit == 0 ? 0 : random_() % limit; }

  void change(Bytes& bytes, const std::vector<Bytes>& corpus) {
    const std::size_t at = below(bytes.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(bytes.size() - at, 64) + 1);
    const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = begin + static_cast<std::ptrdiff_t>(length);
    switch (below(7)) {
      case 0:
        if (at < bytes.size()) bytes[at] ^= static_cast<std::uint8_t>(1u << below(8));
        break;
      case 1:
        if (at < bytes.size()) bytes[at] = static_cast<std::uint8_t>(random_());
        break;
      case 2:
        bytes.erase(begin, end);
        break;
      case 3: {
        const Bytes twice(begin, end);
        bytes.insert(begin, twice.begin(), twice.end());
        break;
      }
      case 4:
        put_number(bytes, at);
        break;
      case 5:
        put_text(bytes, at);
        break;
      default: {
        const Bytes& other = corpus[below(corpus.size())];
        const std::size_t from = below(other.size() + 1);
        bytes.resize(at);
        bytes.insert(bytes.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
      }
    }
  }

  void put_number(Bytes& bytes, std::size_t at) {
    constexpr std::uint64_t kHurtful[] = {0,
                                          1,
                                          2,
                                          0x7f,
                                          0x80,
                                          0xff,
                                          0x7fff,
                                          0xffff,
                                          0x7fffffff,
                                          0x80000000,
                                          0xffffffff,
                                          0x7fffffffffffffff,
                                          0x8000000000000000,
                                          0xffffffffffffffff};
    const std::uint64_t number = kHurtful[below(std::size(kHurtful))] + below(3) - 1;
    const std::size_t width = std::size_t{1} << below(4);
    if (at + width > bytes.size()) return;
    std::memcpy(bytes.data() + at, &number, width);
  }

  void put_text(Bytes& bytes, std::size_t at) {
    constexpr std::string_view kHurtful[] = {
        "-1", "18446744073709551616", "1e999", "nan", "[", "{", "\"", "]]]]", "\\u0000", "null",
        "''"};
    const std::string_view text = kHurtful[below(std::size(kHurtful))];
    bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), text.begin(), text.end());
  }

  std::mt19937_64 random_;
};

Bytes read_bytes(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<Bytes> read_corpus(const std::vector<fs::path>& paths) {
  std::vector<fs::path> files;
  for (const fs::path& path : paths) {
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Bytes> corpus;
  for (const fs::path& file : files) corpus.push_back(read_bytes(file));
  if (corpus.empty()) throw std::runtime_error("there is nothing in the corpus");
  return corpus;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string name = fs::path(argv[0]).filename();
  std::snprintf(crash_name, sizeof crash_name, "crash-%s", name.c_str());
  double seconds = 0;
  std::uint64_t seed = std::random_device{}();
  std::vector<fs::path> paths;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--seconds" && i + 1 < argc) {
      seconds = std::strtod(argv[++i], nullptr);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      paths.emplace_back(argument);
    }
  }
  watch_for_death();
  const std::vector<Bytes> corpus = read_corpus(paths);
  run({});
  for (const Bytes& input : corpus) run(input);
  std::printf("%s: %zu inputs of the corpus\n", name.c_str(), corpus.size());
  if (seconds <= 0) return 0;

  std::printf("%s: mutations with --seed %llu\n", name.c_str(),
              static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  Mutator mutator(seed);
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t count = 0;
  for (; std::chrono::steady_clock::now() < end; ++count) run(mutator.mutated(corpus));
  std::printf("%s: %llu mutations in %.0f s\n", name.c_str(),
              static_cast<unsigned long long>(count), seconds);
  return 0;
}
