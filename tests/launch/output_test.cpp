#include "lockstep/launch/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "lockstep/base/file/fd.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep {
namespace {

using testing::ElementsAre;

std::vector<std::string> cut(const std::vector<std::string>& chunks) {
  std::vector<std::string> lines;
  const auto emit = [&](std::string_view line) { lines.emplace_back(line); };
  LineCutter cutter;
  for (const std::string& chunk : chunks) cutter.feed(chunk, emit);
  cutter.finish(emit);
  return lines;
}

TEST(LineCutter, CutsWhereverTheChunksEnd) {
  EXPECT_THAT(cut({"a\nb", "c\n", "\nd"}), ElementsAre("a", "bc", "", "d"));
  EXPECT_THAT(cut({"", "a", "", "\n"}), ElementsAre("a"));
  EXPECT_THAT(cut({}), ElementsAre());
}

TEST(LineCutter, CutsEndlessLinesAtTheLimit) {
  constexpr std::size_t kLimit = LineCutter::kLongestLine;
  const std::string full(kLimit, 'x');
  EXPECT_THAT(cut({full + "\n", "y\n"}), ElementsAre(full, "y"));
  EXPECT_THAT(cut({full, "\ny"}), ElementsAre(full, "y"));
  EXPECT_THAT(cut({full + "y\n"}), ElementsAre(full, "y"));
  EXPECT_THAT(cut({full, full, "y"}), ElementsAre(full, full, "y"));
}

TEST(OutputPort, NeverWaitsForASlowReader) {
  Pipe pipe = make_pipe();
  OutputPort port(pipe.write_end.get());
  const std::string line(1 << 20, 'x');
  port.put_line("[0] ", line);
  const std::size_t total = line.size() + 5;
  ASSERT_TRUE(port.flush());
  EXPECT_GT(port.pending(), 0u);
  std::string got;
  std::vector<char> chunk(1 << 16);
  while (got.size() < total) {
    const ssize_t count = ::read(pipe.read_end.get(), chunk.data(), chunk.size());
    ASSERT_GT(count, 0);
    got.append(chunk.data(), static_cast<std::size_t>(count));
    ASSERT_TRUE(port.flush());
  }
  EXPECT_EQ(got, "[0] " + line + "\n");
  EXPECT_EQ(port.pending(), 0u);
}

TEST(OutputPort, TellsWhenNobodyReads) {
  ::signal(SIGPIPE, SIG_IGN);
  Pipe pipe = make_pipe();
  OutputPort port(pipe.write_end.get());
  pipe.read_end.reset();
  port.put_line("", "x");
  EXPECT_FALSE(port.flush());
  port.discard();
  EXPECT_TRUE(port.flush());
}

// The line that is there until the next one takes its place.
TEST(OutputPort, ALineTakesThePlaceOfLiveText) {
  Pipe pipe = make_pipe();
  OutputPort port(pipe.write_end.get());
  port.put_live("\rstep 1\x1b[K\r");
  port.put_live("\rstep 2\x1b[K\r");
  port.put_line("[1] ", "a");
  port.put_line("[1] ", "b");
  ASSERT_TRUE(port.flush());
  char text[100];
  const ssize_t count = ::read(pipe.read_end.get(), text, sizeof text);
  EXPECT_EQ(std::string(text, static_cast<std::size_t>(count)),
            "\rstep 1\x1b[K\r\rstep 2\x1b[K\r\r\x1b[K[1] a\n[1] b\n");
}

// A disk that is full and then has space again: a file with a size limit.
TEST(OutputPort, DropsLinesThatFindNoRoomAndCountsThem) {
  ::signal(SIGXFSZ, SIG_IGN);
  const ScratchFolder folder;
  const auto path = folder.path() / "log";
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  OutputPort port(file.get());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  port.put_line("", "one");
  port.put_line("", "and two");  // does not fit
  port.put_line("", "three");
  EXPECT_TRUE(port.flush());
  EXPECT_EQ(port.pending(), 0u);
  port.put_line("", "four");
  EXPECT_TRUE(port.flush());
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  port.put_line("", "five");
  port.put_line("", "six");
  EXPECT_TRUE(port.flush());
  EXPECT_EQ(read_file(path),
            "one\nand tw\nlockstep: 3 lines of output are missing here: they found no room\n"
            "five\nsix\n");
}

TEST(OutputPort, OfAFullDiskIsNoReaderThatIsGone) {
  const UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  OutputPort port(full.get());
  for (int i = 0; i < 3; ++i) {
    port.put_line("", "x");
    EXPECT_TRUE(port.flush());
    EXPECT_EQ(port.pending(), 0u);
  }
}

TEST(OutputPort, KnowsWhenTwoDescriptorsAreOnePipe) {
  Pipe pipe = make_pipe();
  Pipe other = make_pipe();
  const UniqueFd copy(::dup(pipe.write_end.get()));
  EXPECT_TRUE(lead_to_the_same(pipe.write_end.get(), copy.get()));
  EXPECT_FALSE(lead_to_the_same(pipe.write_end.get(), other.write_end.get()));
}

}  // namespace
}  // namespace lockstep
