// lockstep import: a model of Hugging Face transformers becomes a run.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "lockstep/base/text/number.h"
#include "lockstep/cli/command.h"
#include "lockstep/train/model_io/interchange.h"

namespace lockstep::cli {
namespace {

constexpr const char* kImportFooter =
    R"(Reads config.json, model.safetensors (or its shards) and tokenizer.json of GPT2LMHeadModel,
LlamaForCausalLM, MixtralForCausalLM and BertForMaskedLM. The run has one checkpoint, of step 0,
with the model's parameters; generate, train and export take it like any other.

Examples:
  lockstep import gpt2 runs/gpt2
  lockstep generate runs/gpt2 "Once upon a time"
  lockstep train runs/gpt2 data.text=book.txt)";

void run_import(const std::string& from, const std::string& run) {
  const train::Interchanged done = train::import_hugging_face(from, run);
  for (const std::string& notice : done.notices) fmt::print(stderr, "note: {}\n", notice);
  fmt::print("{}: {}, {} parameters, {}\n", run, done.shape.name, format_count(done.parameters),
             done.tokenizer ? "with its tokenizer" : "without a tokenizer");
}

}  // namespace

void add_import(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("import", "Make a run of a Hugging Face model");
  auto from = std::make_shared<std::string>();
  auto run = std::make_shared<std::string>();
  command->add_option("from", *from, "The folder with config.json and model.safetensors")
      ->type_name("HF_FOLDER")
      ->required();
  command->add_option("run", *run, "The run's folder: new, empty, or an earlier import")
      ->type_name("RUN_FOLDER")
      ->required();
  command->footer(kImportFooter);
  command->callback([from, run, &exit_code] {
    run_import(*from, *run);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
