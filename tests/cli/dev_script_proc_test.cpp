// ./dev as people call it, with a cmake and a python3 that write down how they are called.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/cli/shell.h"
#include "tests/data/temporary_folder.h"
#include "tests/paths.h"

namespace lockstep::dev_script_test {
namespace {

namespace fs = std::filesystem;
using fixtures::TemporaryFolder;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class DevScript : public ::testing::Test {
 protected:
  DevScript() {
    fs::copy_file(in_sources("dev"), folder_ / "dev");
    put_program("bin/dpkg-query",
                "case $1 in -L) exec /usr/bin/dpkg-query \"$@\" ;; esac; echo installed");
    put_program("bin/apt-get", "exit 0");
  }

  void put_program(const std::string& name, const std::string& body) const {
    fs::permissions(folder_.put(name, "#!/bin/sh\n" + body + "\n"), fs::perms::owner_all);
  }

  testing::Outcome dev(const std::string& arguments) const {
    return testing::shell("cd " + folder_.path().string() + " && PATH=$PWD/bin:$PATH ./dev " +
                          arguments + " 2>&1");
  }

  TemporaryFolder folder_;
};

TEST_F(DevScript, DemoBuildsNoTests) {
  // Ends the demo where it builds.
  put_program("bin/cmake", "echo \"cmake $*\"; case $1 in --build) exit 3 ;; esac");
  const auto outcome = dev("demo");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.text;
  EXPECT_THAT(outcome.text, ContainsRegex("cmake --build --preset release -j [0-9]+ "
                                          "--target lockstep_cli example_all_reduce\n"));
}

TEST_F(DevScript, BuildBuildsEverything) {
  put_program("bin/cmake", "echo \"cmake $*\"");
  const auto outcome = dev("build");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, ContainsRegex("cmake --build --preset release -j [0-9]+\n"));
}

// The others run all the same.
TEST_F(DevScript, CiNamesThePartThatFails) {
  put_program("bin/cmake", "exit 0");
  put_program("bin/ctest", "echo \"ctest $*\"; case $* in *tsan*) exit 1 ;; esac");
  put_program("build/asan-ubsan/tests/some_test", "exit 0");
  const auto outcome = dev("ci");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.text;
  for (const char* part : {"run_test", "test_asan_core", "test_asan_core_rest", "test_asan_units",
                           "test_asan_processes"}) {
    EXPECT_THAT(outcome.text, ContainsRegex(std::string("\n") + part + " +0 min  passed\n"));
  }
  EXPECT_THAT(outcome.text, ContainsRegex("\ntest_tsan +0 min  FAILED\n"));
  EXPECT_THAT(outcome.text, HasSubstr("failed: test_tsan\n"));
  for (const char* third : {"-I 1,,3\n", "-I 2,,3\n", "-I 3,,3\n"}) {
    EXPECT_THAT(outcome.text, HasSubstr(third));
  }
}

// All that compiling and linking need lies in it, and no link leads out of it.
TEST_F(DevScript, BundleHoldsWhatUnpacksTexts) {
#ifndef __x86_64__
  GTEST_SKIP() << "a bundle is made on an x86-64 machine";
#endif
  put_program("bin/git", "exit 0");  // there are no sources here
  put_program("bin/xz", "exec cat");
  const auto outcome = dev("bundle");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.text;
  const fs::path bundled = folder_ / "build/bundle/lockstep/bundled/usr";
  const fs::path libraries = bundled / "lib/x86_64-linux-gnu";
  for (const fs::path& file :
       {bundled / "include/zlib.h", bundled / "include/zstd.h", libraries / "libz.so",
        libraries / "libz.so.1", bundled / "include/httplib.h", libraries / "libcpp-httplib.so",
        libraries / "libcpp-httplib.so.0.11", libraries / "libbrotlienc.so.1",
        libraries / "pkgconfig/cpp-httplib.pc", libraries / "pkgconfig/libbrotlienc.pc",
        libraries / "libzstd.so", libraries / "libzstd.so.1", libraries / "pkgconfig/zlib.pc",
        libraries / "pkgconfig/libzstd.pc"}) {
    ASSERT_TRUE(fs::exists(file)) << file;
    EXPECT_TRUE(fs::canonical(file).string().starts_with(fs::canonical(bundled).string())) << file;
  }
}

TEST_F(DevScript, PeersLeavesTheIndexToPip) {
  put_program("bin/python3", "mkdir -p build/peers/bin && cp bin/peer build/peers/bin/python");
  put_program("bin/peer", "echo \"python $*\"");
  const auto outcome = dev("peers");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
  EXPECT_THAT(outcome.text, HasSubstr("python -m pip install --quiet torch numpy tokenizers\n"));
  EXPECT_THAT(outcome.text, Not(HasSubstr("index")));
  EXPECT_THAT(outcome.text, Not(HasSubstr("://")));
}

}  // namespace
}  // namespace lockstep::dev_script_test
