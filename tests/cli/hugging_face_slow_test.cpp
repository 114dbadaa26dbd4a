// Import and export, judged by Hugging Face transformers where there is a Python that has it:
// LOCKSTEP_PYTHON names one, else it is python3.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tests/cli/shell.h"
#include "tests/paths.h"

namespace lockstep::cli {
namespace {

TEST(HuggingFaceItself, LoadsWhatIsExportedAndComputesTheSame) {
  const char* chosen = std::getenv("LOCKSTEP_PYTHON");
  const std::string python = chosen == nullptr ? "python3" : chosen;
  if (testing::shell(python + " -c 'import torch, transformers, tokenizers' 2>/dev/null")
          .exit_code != 0) {
    GTEST_SKIP() << python << " has no torch and transformers; LOCKSTEP_PYTHON names one that has";
  }
  const testing::Outcome outcome =
      testing::shell(python + " " + in_sources("peers/check_hugging_face.py") + " " +
                     in_build("lockstep") + " 2>&1");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
}

}  // namespace
}  // namespace lockstep::cli
