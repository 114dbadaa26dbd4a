// Merges the output of ranks line by line.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace lockstep {

// Cuts a stream of bytes into lines.
class LineCutter {
 public:
  // A line without its newline; one longer than kLongestLine comes as several.
  using Emit = std::function<void(std::string_view line)>;
  static constexpr std::size_t kLongestLine = 256 << 10;

  void feed(std::string_view bytes, const Emit& emit);
  void finish(const Emit& emit);  // emits what follows the last newline
  std::string_view unfinished() const { return line_; }

 private:
  std::string line_;
};

// Writes lines to a descriptor that may be slow, without waiting. Lines of several writers to the
// same port do not mix.
class OutputPort {
 public:
  explicit OutputPort(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void put_line(std::string_view prefix, std::string_view line);
  std::size_t pending() const { return pending_.size() - written_; }

  // Writes as much as possible without waiting; false if the reader has closed it.
  bool flush();
  void discard();  // drops pending output

 private:
  int fd_;
  std::string pending_;
  std::size_t written_ = 0;
};

// Two descriptors of one and the same file, pipe or terminal.
bool lead_to_the_same(int fd, int other_fd);

}  // namespace lockstep
