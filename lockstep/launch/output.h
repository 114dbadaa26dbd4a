// Merges the output of ranks line by line.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

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
  std::string take_unfinished() { return std::exchange(line_, {}); }

 private:
  std::string line_;
};

// Lines on their way to a descriptor that may be slow; never waits. A line is written whole, so
// lines of other writers to the same port come before or after it. Lines that cannot be written, as
// on a full disk, are dropped; when writing works again, a line reports how many.
class OutputPort {
 public:
  explicit OutputPort(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  void put_line(std::string_view prefix, std::string_view line);
  // What a terminal shows until the next line takes its place: text that ends with a carriage
  // return.
  void put_live(std::string_view text);
  std::size_t pending() const { return pending_.size() - written_; }

  // Writes as much as possible without waiting; false if the reader is gone.
  bool flush();
  void discard();  // drops pending output

 private:
  void drop();

  int fd_;
  bool is_live_ = false;  // what was put last
  std::string pending_;
  std::size_t written_ = 0;
  std::size_t lost_ = 0;      // dropped lines that are not reported yet
  std::size_t note_end_ = 0;  // of the line in pending_ that reports them; 0: there is none
  bool torn_ = false;         // the last line that was written is not whole
};

// Two descriptors of one and the same file, pipe or terminal.
bool lead_to_the_same(int fd, int other_fd);

}  // namespace lockstep
