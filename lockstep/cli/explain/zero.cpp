// lockstep explain zero: what a worker holds at each stage of ZeRO.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/plan/memory.h"

namespace lockstep::cli {
namespace {

constexpr double kStagesHead = 48;  // for the legend
constexpr double kStageHeight = 118;
constexpr double kStageLeft = 196;
constexpr double kRankWidth = 92;
constexpr double kRankHeight = 82;
constexpr double kTotalsWidth = 210;
constexpr plan::Count kMostDrawnRanks = 8;

struct ZeroTopic {
  std::string model = "gpt2-1558m";
  plan::Count ranks = 4;
  std::string precision = "bf16";
  std::string svg;
};

// One kind of state: its bytes whole and at this stage.
struct StateColumn {
  std::string_view colour;
  plan::Count whole = 0;
  plan::Count held = 0;
};

std::string_view stage_name(int stage) {
  constexpr std::string_view kNames[] = {"everything is whole", "optimizer states sharded",
                                         "and gradients sharded", "and parameters sharded"};
  return kNames[stage];
}

void draw_rank(Drawing& drawing, const Drawing::Area& area, plan::Count rank, plan::Count ranks,
               const std::vector<StateColumn>& columns, plan::Count all) {
  double x = area.x;
  for (const StateColumn& column : columns) {
    const double width = area.width * static_cast<double>(column.whole) / static_cast<double>(all);
    const Drawing::Area whole{x + 1, area.y, width - 2, area.height};
    x += width;
    if (column.held == column.whole) {
      drawing.box(whole, column.colour, 2);
      continue;
    }
    // The rank's shard at its place; what others hold is an outline.
    drawing.box(whole, fmt::format("ghost thin {}", column.colour), 2);
    const double part = area.height / static_cast<double>(ranks);
    drawing.box({whole.x, area.y + part * static_cast<double>(rank), whole.width, part},
                column.colour, 1);
  }
}

std::string draw_zero(const ZeroTopic& topic, plan::Count parameters, plan::Precision precision) {
  const plan::Count drawn = std::min(topic.ranks, kMostDrawnRanks);
  const double ranks_width = static_cast<double>(drawn) * (kRankWidth + 16);
  const double width = std::max(kStageLeft + ranks_width + kTotalsWidth + Drawing::kMargin, 720.0);
  Drawing drawing(
      width, "What a worker holds at each stage of ZeRO",
      "For every stage and rank, parameters, gradients and optimizer states as areas of "
      "their bytes: filled where the rank holds them, outlined where others do.");
  drawing.note(
      fmt::format("{}: P = {} parameters, {} with Adam, N = {} ranks. Filled is held, "
                  "dashed is on another rank.",
                  topic.model, format_count(parameters), topic.precision, topic.ranks));
  const double top = drawing.notes_end() + kStagesHead;
  drawing.legend(Drawing::kMargin, drawing.notes_end() + 26,
                 {{"blue", "parameters"}, {"orange", "gradients"}, {"purple", "optimizer states"}});
  const plan::StateBytes whole = plan::state_bytes(parameters, precision, 0, topic.ranks);
  for (int stage = 0; stage < plan::kZeroStages; ++stage) {
    const plan::StateBytes held = plan::state_bytes(parameters, precision, stage, topic.ranks);
    const double y = top + stage * kStageHeight;
    drawing.text(Drawing::kMargin, y + 34, fmt::format("stage {}", stage), "strong");
    drawing.text(Drawing::kMargin, y + 52, stage_name(stage), "small quiet");
    const std::vector<StateColumn> columns{{"blue", whole.parameters, held.parameters},
                                           {"orange", whole.gradients, held.gradients},
                                           {"purple", whole.optimizer(), held.optimizer()}};
    for (plan::Count rank = 0; rank < drawn; ++rank) {
      const Drawing::Area area{kStageLeft + static_cast<double>(rank) * (kRankWidth + 16), y + 4,
                               kRankWidth, kRankHeight};
      draw_rank(drawing, area, rank, topic.ranks, columns, whole.total());
      drawing.text(area.middle(), area.bottom() + 14, fmt::format("rank {}", rank),
                   "middle tiny quiet");
    }
    const double x = kStageLeft + ranks_width + 18;
    drawing.text(x, y + 26,
                 fmt::format("{} a rank", format_bytes(static_cast<double>(held.total()))),
                 "strong");
    drawing.text(x, y + 44, fmt::format("{} bytes", plan::state_formula(precision, stage)),
                 "small quiet");
    drawing.text(x, y + 61, fmt::format("sends {}P a step", plan::traffic_multiple(stage)),
                 "small quiet");
    const double most = kTotalsWidth - 40;
    drawing.box({x, y + 70, most, 10}, "band", 2);
    drawing.box({x, y + 70,
                 most * static_cast<double>(held.total()) / static_cast<double>(whole.total()), 10},
                "teal", 2);
    if (stage + 1 < plan::kZeroStages) {
      drawing.line({Drawing::kMargin, y + kStageHeight - 8},
                   {width - Drawing::kMargin, y + kStageHeight - 8}, "line-grid");
    }
  }
  return drawing.finish(top + plan::kZeroStages * kStageHeight + 6);
}

std::string zero_text(const ZeroTopic& topic, plan::Count parameters, plan::Precision precision) {
  TextTable table("llrrrrl");
  table.row({"stage", "", "parameters", "gradients", "optimizer", "all", "formula"});
  for (int stage = 0; stage < plan::kZeroStages; ++stage) {
    const plan::StateBytes held = plan::state_bytes(parameters, precision, stage, topic.ranks);
    const auto size = [](plan::Count bytes) { return format_bytes(static_cast<double>(bytes)); };
    table.row({fmt::to_string(stage), std::string(stage_name(stage)), size(held.parameters),
               size(held.gradients), size(held.optimizer()), size(held.total()),
               plan::state_formula(precision, stage)});
  }
  return fmt::format("{}: {} parameters, {}, {} ranks; bytes a rank\n{}", topic.model,
                     format_count(parameters), topic.precision, topic.ranks, table.text());
}

}  // namespace

void add_explain_zero(CLI::App& explain, int& exit_code) {
  auto* command =
      explain.add_subcommand("zero", "What a worker holds at each stage of ZeRO, in bytes");
  auto topic = std::make_shared<ZeroTopic>();
  command->add_option("--model", topic->model, "A model by name, as lockstep plan lists them")
      ->capture_default_str();
  command->add_option("-n,--ranks", topic->ranks, "Number of ranks")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--precision", topic->precision, "bf16, f16, f32 or fp8")
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain zero --model gpt2-1558m --ranks 8 --svg zero.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    const plan::Count parameters = plan::count_parameters(plan::find_model(topic->model)).total();
    const plan::Precision precision = plan::precision_from_name(topic->precision);
    if (!topic->svg.empty()) {
      return write_picture(topic->svg, draw_zero(*topic, parameters, precision));
    }
    fmt::print("{}", zero_text(*topic, parameters, precision));
  });
}

}  // namespace lockstep::cli
