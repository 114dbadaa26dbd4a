#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "lockstep/base/file/file.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/io/sharded_safetensors.h"
#include "tests/cli/shell.h"
#include "tests/train/model_io/hugging_face_folder.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::run_lockstep;

class InterchangeCommands : public ::testing::Test {
 protected:
  void SetUp() override { fixtures::write_model_folder(theirs_, "gpt2"); }

  std::string path(const char* name) const { return (folder_.path() / name).string(); }
  testing::Outcome import() const {
    return run_lockstep("import " + path("theirs") + " " + path("run"));
  }
  // The command fails with this exit code, one line and nothing left behind.
  void expect_refusal(const std::string& arguments, int exit_code, const std::string& says) {
    const testing::Outcome outcome = run_lockstep(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.text;
    EXPECT_THAT(outcome.text, AllOf(HasSubstr("lockstep: "), HasSubstr(says))) << arguments;
    for (const auto& entry : fs::directory_iterator(folder_.path())) {
      EXPECT_NE(entry.path().filename().string().front(), '.') << entry.path();
    }
  }

  ScratchFolder folder_;
  fs::path theirs_ = folder_.path() / "theirs";
};

TEST_F(InterchangeCommands, BringAModelInAndOutBitForBit) {
  const testing::Outcome imported = import();
  ASSERT_EQ(imported.exit_code, 0) << imported.text;
  EXPECT_THAT(imported.text, HasSubstr("gpt2 of 2 x 32, 29,088 parameters, without a tokenizer"));
  const testing::Outcome inspected = run_lockstep("inspect " + path("run") + " --config");
  EXPECT_EQ(inspected.exit_code, 0);
  EXPECT_THAT(inspected.text, AllOf(HasSubstr("whole"), HasSubstr("layer.1.mlp.down.weight"),
                                    HasSubstr("[32, 128]"), HasSubstr("vocabulary = 97")));
  const testing::Outcome exported = run_lockstep("export " + path("run") + " " + path("ours"));
  ASSERT_EQ(exported.exit_code, 0) << exported.text;
  const io::ShardedSafetensors ours(folder_.path() / "ours");
  const io::ShardedSafetensors theirs(theirs_);
  EXPECT_EQ(ours.names(), theirs.names());
  for (const std::string_view name : theirs.names()) {
    const auto a = ours.load(name);
    const auto b = theirs.load(name);
    ASSERT_EQ(a.tensor.bytes(), b.tensor.bytes()) << name;
    EXPECT_EQ(std::memcmp(a.tensor.data(), b.tensor.data(), a.tensor.bytes()), 0) << name;
  }
  for (const char* what : {"theirs", "ours", "ours/model.safetensors"}) {
    const testing::Outcome outcome = run_lockstep("inspect " + path(what));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.text;
    EXPECT_THAT(outcome.text, HasSubstr("transformer.h.1.mlp.c_fc.weight"));
  }
  // Damage is named by inspect, and stops an export.
  const fs::path states = folder_.path() / "run/checkpoints/step-00000000/states.safetensors";
  std::string bytes = read_file(states);
  bytes[bytes.size() / 2] ^= 1;
  write_file(states, bytes);
  const testing::Outcome damaged = run_lockstep("inspect " + path("run"));
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(damaged.text, HasSubstr("states.safetensors is damaged"));
  expect_refusal("export " + path("run") + " " + path("more"), 1, "every checkpoint is damaged");
}

TEST_F(InterchangeCommands, SayWhatIsWrongWithTheirArguments) {
  const std::string theirs = path("theirs");
  expect_refusal("import " + path("none") + " " + path("run"), 2, "does not exist");
  expect_refusal("import " + theirs, 2, "required");
  expect_refusal("export " + path("none") + " " + path("ours"), 2, "does not exist");
  expect_refusal("export " + theirs + " " + path("ours"), 2, "neither the folder of a run");
  expect_refusal("inspect " + path("none"), 2, "does not exist");
  expect_refusal("inspect " + folder_.path().string(), 2, "is not the folder of a run");
  expect_refusal("import " + theirs + " " + theirs, 2, "did not write");
  ASSERT_EQ(import().exit_code, 0);
  expect_refusal("export " + path("run") + " " + path("ours") + " --dtype f64", 2,
                 "--dtype is f64");
  expect_refusal("export " + path("run") + " " + path("ours") + " --shard-size much", 2,
                 "--shard-size");
  expect_refusal("export " + path("run") + " " + theirs, 2, "did not write");
  fs::create_directory(folder_.path() / "locked");
  fs::permissions(folder_.path() / "locked", fs::perms::owner_read | fs::perms::owner_exec);
  if (::geteuid() != 0) {
    expect_refusal("export " + path("run") + " " + path("locked/ours"), 1, "Permission denied");
  }
  expect_refusal("export " + path("run") + " /proc/ours", 1, "cannot make");
}

TEST_F(InterchangeCommands, DoNotBelieveFiles) {
  const auto refused = [&](const char* file, const std::string& text, int exit_code,
                           const std::string& says) {
    const std::string before = read_file(theirs_ / file);
    write_file(theirs_ / file, text);
    expect_refusal("import " + path("theirs") + " " + path("run"), exit_code, says);
    write_file(theirs_ / file, before);
    EXPECT_FALSE(fs::exists(folder_.path() / "run"));
  };
  const std::string config = read_file(theirs_ / "config.json");
  const auto changed = [&](const std::string& was, const std::string& is) {
    std::string text = config;
    return text.replace(text.find(was), was.size(), is);
  };
  refused("config.json", "", 1, "not valid JSON");
  refused("config.json", changed("\"n_embd\": 32", "\"n_embd\": [32]"), 2, "n_embd");
  refused("config.json", changed("\"n_embd\": 32", "\"n_embd\": 64"), 2,
          "does not match the model's");
  refused("config.json", changed("\"n_layer\": 2", "\"n_layer\": 3"), 2, "transformer.h.2");
  refused("config.json", changed("\"n_layer\": 2", "\"n_layer\": 1"), 2, "transformer.h.1");
  refused("config.json", changed("\"n_layer\": 2", "\"n_layer\": 2000000000"), 2, "only");
  refused("config.json", changed("\"vocab_size\": 97", "\"vocab_size\": 2147483647"), 2,
          "does not match the model's");
  refused("config.json", changed("gelu_new", "tanh"), 2, "activation_function");
  const std::string tensors = read_file(theirs_ / "model.safetensors");
  refused("model.safetensors", tensors.substr(0, tensors.size() - 1), 1, "truncated");
  refused("model.safetensors", std::string(8, '\xff') + tensors.substr(8), 1,
          "not a safetensors file");
  refused("model.safetensors", "", 1, "too few");
}

}  // namespace
}  // namespace lockstep::cli
