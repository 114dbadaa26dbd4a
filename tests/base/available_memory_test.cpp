#include "lockstep/base/system/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/base/file/scratch_folder.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// A /proc and a /sys of a machine with 1 GB to give.
class AvailableMemory : public ::testing::Test {
 protected:
  AvailableMemory() {
    put("/proc/meminfo", "MemTotal: 2000000 kB\nMemFree: 10 kB\nMemAvailable: 1000000 kB\n");
  }
  void put(const std::string& path, const std::string& text) const {
    const fs::path file = root_ + path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void put_group_1(const std::string& folder, const std::string& limit, const std::string& used,
                   const std::string& idle) const {
    put(folder + "/memory.limit_in_bytes", limit + "\n");
    put(folder + "/memory.usage_in_bytes", used + "\n");
    put(folder + "/memory.stat", "inactive_file 1\ntotal_inactive_file " + idle + "\n");
  }
  void put_group_2(const std::string& folder, const std::string& limit, const std::string& used,
                   const std::string& idle) const {
    put(folder + "/memory.max", limit + "\n");
    put(folder + "/memory.current", used + "\n");
    put(folder + "/memory.stat", "anon 5\ninactive_file " + idle + "\n");
  }
  std::size_t available() const { return available_memory_bytes(root_); }

  static constexpr std::size_t kMachine = 1'024'000'000;
  ScratchFolder folder_;
  const std::string root_ = folder_.path().string();
};

TEST_F(AvailableMemory, IsTheMachinesWithoutGroups) { EXPECT_EQ(available(), kMachine); }

TEST_F(AvailableMemory, HeedsGroupsOfVersion2AndThoseThatHoldThem) {
  put("/proc/self/cgroup", "0::/slice/job\n");
  put("/proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n");
  put_group_2("/sys/fs/cgroup/slice/job", "max", "700", "0");
  EXPECT_EQ(available(), kMachine);
  put_group_2("/sys/fs/cgroup/slice", "5000", "1000", "400");
  EXPECT_EQ(available(), 4400u);
  put_group_2("/sys/fs/cgroup/slice/job", "2000", "700", "0");
  EXPECT_EQ(available(), 1300u);
  put("/sys/fs/cgroup/slice/job/memory.high", "800\n");
  EXPECT_EQ(available(), 100u);
  put_group_2("/sys/fs/cgroup/slice/job", "2000", "3000", "0");
  EXPECT_EQ(available(), 0u);
}

TEST_F(AvailableMemory, HeedsGroupsOfVersion1) {
  put("/proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/slurm/job_7\n0::/\n");
  put("/proc/self/mountinfo",
      "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put_group_1("/sys/fs/cgroup/memory", "9223372036854771712", "5000", "0");
  EXPECT_EQ(available(), kMachine);
  put_group_1("/sys/fs/cgroup/memory/slurm/job_7", "6000", "2000", "500");
  EXPECT_EQ(available(), 4500u);
  put_group_1("/sys/fs/cgroup/memory/slurm", "3000", "2000", "0");
  EXPECT_EQ(available(), 1000u);
}

// A container has its own group at the top of the mount, but /proc may give its path outside.
TEST_F(AvailableMemory, FindsTheGroupOfAContainer) {
  put("/proc/self/cgroup", "4:memory:/docker/12\n");
  put("/proc/self/mountinfo",
      "35 31 0:32 /docker/12 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
  put_group_1("/sys/fs/cgroup/memory", "6000", "2000", "0");
  EXPECT_EQ(available(), 4000u);
  put("/proc/self/cgroup", "4:memory:/docker/12/inner\n");
  put_group_1("/sys/fs/cgroup/memory/inner", "2500", "2000", "0");
  EXPECT_EQ(available(), 500u);
}

}  // namespace
}  // namespace lockstep
