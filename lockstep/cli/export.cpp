// lockstep export: a checkpoint becomes a folder that Hugging Face transformers loads.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/model_io/interchange.h"

namespace lockstep::cli {
namespace {

constexpr const char* kExportFooter =
    R"(Writes config.json, generation_config.json, model.safetensors and, where the run has one, the
tokenizer. The folder is written completely or not at all.

Examples:
  lockstep export runs/first my-model
  lockstep export runs/first my-model --checkpoint best
  lockstep export runs/first/checkpoints/step-00001000 my-model --dtype bf16 --shard-size 2GB

  >>> AutoModelForCausalLM.from_pretrained("my-model"))";

struct ExportFlags {
  std::string from;
  std::string checkpoint;
  std::string to;
  std::string dtype = "f32";
  std::string shard_size = "5GB";
};

train::ExportOptions export_options(const ExportFlags& flags) {
  train::ExportOptions options;
  const auto dtype = dtype_from_name(flags.dtype);
  if (!dtype || (*dtype != DType::kF32 && *dtype != DType::kBF16 && *dtype != DType::kF16)) {
    fail(ErrorCode::kInvalidArgument, "--dtype is {}; expected f32, bf16 or f16", flags.dtype);
  }
  options.dtype = *dtype;
  try {
    options.shard_bytes = parse_bytes(flags.shard_size);
  } catch (const Error& error) {
    fail(error.code(), "--shard-size: {}", error.what());
  }
  if (options.shard_bytes == 0)
    fail(ErrorCode::kInvalidArgument, "--shard-size is 0; it must be more");
  return options;
}

void run_export(const ExportFlags& flags) {
  const train::ExportOptions options = export_options(flags);
  const auto warn = [](const std::string& text) { fmt::print(stderr, "warning: {}\n", text); };
  const train::Interchanged done = train::export_hugging_face(
      train::choose_checkpoint(flags.from, flags.checkpoint), flags.to, options, warn);
  for (const std::string& notice : done.notices) fmt::print(stderr, "note: {}\n", notice);
  fmt::print("{}: {}, {} parameters in {}\n", flags.to, done.shape.name,
             format_count(done.parameters), name(options.dtype));
}

}  // namespace

void add_export(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand("export", "Write a model for Hugging Face transformers");
  auto flags = std::make_shared<ExportFlags>();
  command->add_option("from", flags->from, "A run's folder (its newest checkpoint) or a checkpoint")
      ->type_name("RUN_OR_CHECKPOINT")
      ->required();
  command->add_option("to", flags->to, "The folder: new, empty, or an earlier export")
      ->type_name("HF_FOLDER")
      ->required();
  command
      ->add_option("--checkpoint", flags->checkpoint,
                   "Of a run: newest, best (the lowest validation loss) or a step [newest]")
      ->type_name("WHICH");
  command->add_option("--dtype", flags->dtype, "f32, bf16 or f16")->capture_default_str();
  command->add_option("--shard-size", flags->shard_size, "The most bytes of one file")
      ->capture_default_str();
  command->footer(kExportFooter);
  command->callback([flags, &exit_code] {
    run_export(*flags);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
