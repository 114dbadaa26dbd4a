// Runs on meshes that begin with the parameters of a folder of Hugging Face transformers: their
// curves are those of one worker that begins with them.
#include <gtest/gtest.h>

#include <string>

#include "tests/train/model_io/hugging_face_folder.h"
#include "tests/train/run/thread_runs.h"

namespace lockstep::train::init_from_test {
namespace {

class InitFrom : public ThreadRuns {
 protected:
  void run(const std::string& model, const std::string& dir, int ranks, const Settings& mesh) {
    Settings settings = {"data.text=" + (folder / "text.txt").string(),
                         "data.tokenizer=character",
                         "run.init_from=" + (folder / model).string(),
                         "run.dir=" + (folder / dir).string(),
                         "train.seq_len=8",
                         "train.global_batch_size=8",
                         "train.micro_batch_size=2",
                         "train.precision=f32",
                         "train.threads=1",
                         "train.validate_batches=1",
                         "optimizer.learning_rate=0.01",
                         "train.steps=4"};
    settings.insert(settings.end(), mesh.begin(), mesh.end());
    run_ranks(ranks, settings);
  }
};

struct Mesh {
  std::string model;
  int ranks;
  Settings settings;
};

// GPT-2 stores matrices transposed, GPT-NeoX queries, keys and values head by head, Phi-3 several
// matrices as one, and Mixtral one for each expert; widths and vocabularies are odd.
const Mesh kMeshes[] = {
    {"gpt2", 2, {"parallel.tensor=2"}},
    {"gpt2", 4, {"parallel.tensor=2", "parallel.zero=3"}},
    {"gpt2", 2, {"parallel.pipeline=2"}},
    {"llama", 2, {"parallel.tensor=2", "parallel.sequence=true"}},
    {"llama", 4, {"parallel.tensor=2", "parallel.pipeline=2"}},
    {"gpt_neox", 3, {"parallel.tensor=3"}},
    {"gpt_neox", 6, {"parallel.tensor=3", "parallel.pipeline=2"}},
    {"phi3", 3, {"parallel.tensor=3"}},
    {"gemma2", 2, {"parallel.tensor=2", "parallel.sequence=true"}},
    {"gemma2", 6, {"parallel.tensor=2", "parallel.pipeline=3"}},
    {"gemma2", 4, {"parallel.tensor=2", "parallel.zero=3"}},
    {"mixtral", 5, {"parallel.expert=5", "train.micro_batch_size=1", "train.global_batch_size=10"}},
    {"mixtral", 2, {"parallel.tensor=2"}},
};

TEST_F(InitFrom, AFolderOfTransformersHasTheCurveOfOneWorkerOnAnyMesh) {
  int number = 0;
  for (const Mesh& mesh : kMeshes) {
    std::string text = mesh.model;
    for (const std::string& setting : mesh.settings) text += " " + setting;
    SCOPED_TRACE(text);
    fixtures::write_model_folder(folder / mesh.model, mesh.model);
    const std::string one = "one" + std::to_string(number);
    const std::string many = "many" + std::to_string(number++);
    Settings alone;
    for (const std::string& setting : mesh.settings) {
      if (setting.starts_with("train.")) alone.push_back(setting);
    }
    run(mesh.model, one, 1, alone);
    run(mesh.model, many, mesh.ranks, mesh.settings);
    ASSERT_EQ(curve(one).losses.size(), 4u);
    expect_near(curve(many), curve(one), 1e-5);
  }
}

}  // namespace
}  // namespace lockstep::train::init_from_test
