#include "lockstep/cli/explain/model_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/file/file.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/train/options/options.h"

namespace lockstep::cli {
namespace {

plan::Recompute recompute_from_name(std::string_view text) {
  for (const plan::Recompute recompute : plan::kAllRecompute) {
    if (name(recompute) == text) return recompute;
  }
  fail(ErrorCode::kInvalidArgument, "--recompute is none, selective or full, not '{}'", text);
}

}  // namespace

void check_amount(std::string_view flag, double amount) {
  constexpr double kLeast = 1e-3;
  constexpr double kMost = 1 << 20;
  if (amount >= kLeast && amount <= kMost) return;
  fail(ErrorCode::kInvalidArgument, "{} is {}; {} to {} is fine", flag, amount, kLeast, kMost);
}

void add_svg_flag(CLI::App& command, std::string& path) {
  command.add_option("--svg", path, "Draw it into this file instead of printing it")
      ->type_name("FILE");
}

void write_picture(const std::string& path, std::string_view svg) {
  write_file(path, svg);
  fmt::print("drawn in {}\n", path);
}

void ModelFlags::add_to(CLI::App& command) {
  command.add_option("--model", model, "A model by name, as lockstep plan lists them")
      ->capture_default_str();
  command.add_option("--layers", layers, "Another number of layers, to draw fewer")
      ->check(CLI::Range(std::int64_t{1}, nn::kMostLayers));
  command.add_option("--batch", batch, "Sequences of a micro-batch")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  command.add_option("--sequence", sequence, "Tokens of a sequence")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command.add_option("--precision", precision, "bf16, f16, f32 or fp8")->capture_default_str();
  command.add_option("--recompute", recompute, "none, selective or full")->capture_default_str();
}

plan::ModelShape ModelFlags::shape() const {
  plan::ModelShape shape = nn::trainable(plan::find_model(model));
  if (layers) shape.layers = *layers;
  nn::check_size(shape);
  return shape;
}

nn::Setup ModelFlags::setup() const {
  const plan::Precision chosen = plan::precision_from_name(precision);
  const DType dtype = train::dtype_of(chosen);
  return {.shape = {.batch = batch, .sequence = sequence},
          .dtype = dtype,
          .gradient = dtype,
          .fp8 = chosen == plan::Precision::kFp8,
          .recompute = recompute_from_name(recompute)};
}

nn::MemoryPlan ModelFlags::plan(const nn::Sharding& sharding) const {
  const auto ops = make_reference_ops();
  return nn::plan_memory(nn::make_model(shape()), setup(), *ops, nn::OptimizerState::kMoments,
                         sharding);
}

std::string describe(const ModelFlags& flags) {
  return fmt::format("{}{}, {} x {} tokens, {}", flags.model,
                     flags.layers ? fmt::format(" with {} layers", *flags.layers) : "", flags.batch,
                     flags.sequence, flags.precision);
}

std::string block_colour(std::size_t block, std::size_t blocks) {
  constexpr std::string_view kOfLayers[] = {"blue", "purple", "orange", "rose"};
  if (block == 0) return "teal";
  if (block + 1 == blocks) return "grey";
  return std::string(kOfLayers[(block - 1) % std::size(kOfLayers)]);
}

}  // namespace lockstep::cli
