// What `lockstep train` shows on a terminal.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "tests/cli/train_command.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

constexpr unsigned short kColumns = 50;

class TrainTerminal : public testing::TrainCommand {
 protected:
  // All that the command writes to its standard error, a terminal.
  std::string shown(const std::string& arguments) const {
    const UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    EXPECT_EQ(::grantpt(terminal.get()), 0);
    EXPECT_EQ(::unlockpt(terminal.get()), 0);
    const std::string path = ::ptsname(terminal.get());
    UniqueFd screen(::open(path.c_str(), O_RDWR | O_NOCTTY | O_CLOEXEC));
    const winsize size{.ws_row = 24, .ws_col = kColumns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::ioctl(screen.get(), TIOCSWINSZ, &size), 0);
    const std::string command = "exec " + in_build("lockstep") + " train " + arguments;
    const pid_t child = ::fork();
    if (child == 0) {
      const int nothing = ::open("/dev/null", O_RDWR);
      ::dup2(nothing, STDIN_FILENO);
      ::dup2(nothing, STDOUT_FILENO);
      ::dup2(screen.get(), STDERR_FILENO);
      ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
      ::_exit(127);
    }
    screen.reset();
    std::string text;
    std::array<char, 4096> chunk;
    for (ssize_t got; (got = ::read(terminal.get(), chunk.data(), chunk.size())) > 0;) {
      text.append(chunk.data(), static_cast<std::size_t>(got));
    }
    EXPECT_EQ(wait_for(child), 0) << text;
    return text;
  }

  // What was drawn over one line, from carriage return to carriage return.
  static std::vector<std::string> drawings(const std::string& text) {
    std::vector<std::string> found;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find_first_of("\r\n", at), text.size());
      std::string piece = text.substr(at, end - at);
      const std::size_t erased = piece.rfind("\x1b[K");
      if (erased != std::string::npos) piece.resize(erased);
      if (piece.starts_with("step ") && end < text.size() && text[end] == '\r') {
        found.push_back(piece);
      }
      at = end + 1;
    }
    return found;
  }
};

TEST_F(TrainTerminal, OfSeveralRanksKeepsOneLineOfItsWidth) {
  for (const std::string ranks : {"", " --ranks 2", " --ranks 2 comm.backend=threads"}) {
    SCOPED_TRACE(ranks);
    const std::string text =
        shown(settings("run" + std::to_string(ranks.size()), "train.steps=60") + ranks);
    EXPECT_THAT(text, HasSubstr("\x1b[K\r")) << "is redrawn";
    const std::vector<std::string> lines = drawings(text);
    ASSERT_FALSE(lines.empty()) << text;
    for (const std::string& line : lines) EXPECT_LT(line.size(), kColumns) << line;
    EXPECT_THAT(text, HasSubstr("finished at step 60 of 60"));
  }
}

}  // namespace
}  // namespace lockstep
