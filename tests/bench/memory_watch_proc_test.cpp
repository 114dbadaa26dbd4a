// Memory of ranks as the kernel reports it for real processes.
#include "lockstep/bench/memory_watch.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/system/deadline.h"
#include "lockstep/bench/process.h"
#include "tests/cli/shell.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr std::size_t kMebi = 1 << 20;
constexpr std::size_t kPython = 24 * kMebi;  // more than an interpreter has for itself

// A rank that shares 64 MiB with the other one. As soon as both have mapped them rank 1 allocates
// 96 MiB, and starts a process that allocates 128 MiB. When that has been sampled rank 0 ends.
// Until that has been sampled too, rank 1 is the only owner of the shared pages.
constexpr const char* kRank = R"py(
import mmap, os, subprocess, sys, time
folder, rank = sys.argv[1], int(os.environ["RANK"])
with open(f"{folder}/shared", "r+b") as file:
    shared = mmap.mmap(file.fileno(), 64 << 20)
for at in range(0, 64 << 20, 4096):
    shared[at] = 1
def tell(name):
    open(f"{folder}/{name}", "w").close()
def wait_for(name):
    while not os.path.exists(f"{folder}/{name}"):
        time.sleep(0.01)
tell(f"mapped-{rank}")
wait_for(f"mapped-{1 - rank}")
if rank == 0:
    wait_for("done")
    sys.exit()
below = subprocess.Popen([sys.executable, "-c",
    f"import time; x = b'x' * (128 << 20); open('{folder}/below', 'w'); time.sleep(60)"])
wait_for("below")
mine = b"x" * (96 << 20)
tell("full")
wait_for("seen-full")
below.kill()
below.wait()
del mine
tell("done")
wait_for("seen-alone")
)py";

TEST(MemoryWatch, SharesOutWhatRanksShareAndLeavesOutWhatTheyStart) {
  if (testing::shell("python3 -c 1").exit_code != 0) GTEST_SKIP() << "there is no python3";
  if (!fs::exists("/proc/self/smaps_rollup")) GTEST_SKIP() << "this kernel does not tell";
  const ScratchFolder scratch;
  std::ofstream(scratch.path() / "rank.py") << kRank;
  std::ofstream(scratch.path() / "shared").close();
  fs::resize_file(scratch.path() / "shared", 64 * kMebi);
  const std::string rank = fmt::format("python3 {0}/rank.py {0} & ", scratch.path().string());
  MemoryWatch watch(2, std::chrono::milliseconds(5));
  Process launcher({{"sh", "-c", "RANK=0 " + rank + "RANK=1 " + rank + "wait"}, {}});
  // Signals the ranks that whole samples were taken since the file appeared.
  const auto see = [&](const char* begun, const char* seen) {
    const auto deadline = deadline_in(seconds(60));
    while (!fs::exists(scratch.path() / begun) && !has_passed(deadline)) std::this_thread::yield();
    const std::size_t enough = watch.samples() + 6;
    while (watch.samples() < enough && !has_passed(deadline)) std::this_thread::yield();
    std::ofstream(scratch.path() / seen).close();
  };
  see("full", "seen-full");
  see("done", "seen-alone");
  ASSERT_TRUE(launcher.wait_until(deadline_in(seconds(60)))) << launcher.last_words();
  const MemoryWatch::Peak peak = watch.finish();
  EXPECT_EQ(launcher.how_it_ended(), "exit code 0") << launcher.last_words();
  EXPECT_GE(peak.fullest_bytes, (32 + 96) * kMebi);
  EXPECT_LT(peak.fullest_bytes, (32 + 96) * kMebi + kPython);
  EXPECT_GE(peak.all_bytes, (64 + 96) * kMebi);
  EXPECT_LT(peak.all_bytes, (64 + 96) * kMebi + 2 * kPython);
  EXPECT_GT(peak.samples, 10);
}

TEST(MemoryWatch, SeesNothingWhereThereIsNoRank) {
  MemoryWatch watch(2, std::chrono::milliseconds(1));
  Process launcher({{"sleep", "0.05"}, {}});
  EXPECT_TRUE(launcher.wait_until(deadline_in(seconds(60))));
  const MemoryWatch::Peak peak = watch.finish();
  EXPECT_EQ(peak.samples, 0);
  EXPECT_EQ(peak.all_bytes, 0);
  EXPECT_EQ(peak.fullest_bytes, 0);
}

}  // namespace
}  // namespace lockstep::bench
