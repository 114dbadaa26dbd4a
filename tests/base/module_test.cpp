// Modules: found, loaded, and refused in words that help. The C library stands for one.
#include "lockstep/base/module.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kVariable[] = "LOCKSTEP_TEST_MODULE";

ModuleSpec spec() {
  return {.name = "TEST",
          .file = "liblockstep_no_such_module.so",
          .variable = kVariable,
          .how_to_build = "build it",
          .libraries = "install them",
          .version_symbol = "getpagesize",
          .version = ::getpagesize()};
}

std::string path_of_c_library() {
  Dl_info info{};
  EXPECT_NE(::dladdr(reinterpret_cast<void*>(&::getpagesize), &info), 0);
  return info.dli_fname;
}

std::string refusal(const ModuleSpec& of) {
  try {
    Module module(of);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    return error.what();
  }
  return "nothing was thrown";
}

class ModuleLoading : public ::testing::Test {
 protected:
  void use(const std::string& file) { ::setenv(kVariable, file.c_str(), 1); }
  void TearDown() override { ::unsetenv(kVariable); }
};

TEST_F(ModuleLoading, IsNotThere) {
  EXPECT_THAT(refusal(spec()), AllOf(HasSubstr("the TEST module was not found; build it, or set "
                                               "LOCKSTEP_TEST_MODULE to its path. Searched:"),
                                     HasSubstr("/lib/lockstep/liblockstep_no_such_module.so")));
  use("/no/such/file.so");
  EXPECT_THAT(refusal(spec()), HasSubstr("Searched:\n  /no/such/file.so"));
}

TEST_F(ModuleLoading, IsTheFileThatTheVariableNames) {
  use(path_of_c_library());
  const Module module(spec());
  EXPECT_EQ(module.file(), path_of_c_library());
  EXPECT_EQ(module.function<int()>("getpagesize")(), ::getpagesize());
  try {
    module.function<int()>("no_such_function");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("has no no_such_function; build it again"));
  }
}

TEST_F(ModuleLoading, ThatIsCutOffIsRefused) {
  const ScratchFolder folder;
  const std::string whole = read_file(path_of_c_library());
  const std::string cut = (folder.path() / "cut.so").string();
  use(cut);
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{1000}, whole.size() / 2}) {
    write_file(cut, std::string_view(whole).substr(0, bytes));
    EXPECT_THAT(refusal(spec()), HasSubstr("is truncated: it has " + std::to_string(bytes)));
  }
  for (const std::size_t bytes : {0, 3, 63}) {
    write_file(cut, std::string_view(whole).substr(0, bytes));
    EXPECT_THAT(refusal(spec()), HasSubstr("could not be loaded"));
  }
}

TEST_F(ModuleLoading, OfAnotherVersionIsRefused) {
  use(path_of_c_library());
  ModuleSpec other = spec();
  other.version = -1;
  EXPECT_THAT(refusal(other), HasSubstr("was built for another version of lockstep"));
  other.version_symbol = "no_such_function";
  EXPECT_THAT(refusal(other), HasSubstr("was built for another version of lockstep"));
}

TEST_F(ModuleLoading, ThatIsNoLibraryIsRefusedInTheLoadersWords) {
  const ScratchFolder folder;
  const auto file = folder.path() / "text.so";
  write_file(file, "no library");
  use(file.string());
  EXPECT_THAT(refusal(spec()), HasSubstr("the TEST module could not be loaded: "));
}

}  // namespace
}  // namespace lockstep
