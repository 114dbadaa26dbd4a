// lockstep explain gathers: which blocks' parameters are gathered when at stage 3 of ZeRO.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/model_flags.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/number_lists.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/parallel/strategy/sharding_of.h"

namespace lockstep::cli {
namespace {

constexpr double kGridLeft = 170;
constexpr double kGridHead = 98;
constexpr double kGridStep = 66;
constexpr double kGridRow = 40;

struct GatherTopic {
  ModelFlags flags;
  int ranks = 4;
  int unsharded = parallel::ParallelOptions().max_unsharded_blocks;
  std::string svg;
};

nn::MemoryPlan plan_of_stage_3(const GatherTopic& topic) {
  parallel::ParallelOptions options;
  options.zero = 3;
  options.max_unsharded_blocks = topic.unsharded;
  return topic.flags.plan(parallel::sharding_of(options, {.workers = topic.ranks}));
}

std::string step_name(const nn::Model& model, int step) {
  const int blocks = static_cast<int>(model.size());
  const int block = step < blocks ? step : 2 * blocks - 1 - step;
  return model.block(static_cast<std::size_t>(block)).name();
}

// Blocks that are unsharded, or on their way, during a step.
int unsharded_at(const nn::MemoryPlan& plan, int step) {
  return static_cast<int>(std::ranges::count_if(plan.gathers, [&](const nn::Gather& gather) {
    return gather.starts <= step && step <= gather.last;
  }));
}

std::string draw_gathers(const GatherTopic& topic) {
  const nn::MemoryPlan plan = plan_of_stage_3(topic);
  const nn::Model model = nn::make_model(topic.flags.shape());
  const int blocks = static_cast<int>(model.size());
  const int steps = 2 * blocks;
  const double width = kGridLeft + (steps + 1) * kGridStep + Drawing::kMargin;
  Drawing drawing(width, "ZeRO stage 3: a block is whole only while it is needed",
                  "Blocks down, time to the right: when each block's parameters are gathered, when "
                  "they are used, and when gradients are reduce-scattered.");
  drawing.note(
      fmt::format("{} ranks; each holds 1/{} of every block. At most {} blocks are "
                  "unsharded at once: the one that computes and the next.",
                  topic.ranks, topic.ranks, topic.unsharded));
  drawing.legend(Drawing::kMargin, drawing.notes_end() + 26,
                 {{"soft blue", "all-gather: arrives while the block before computes"},
                  {"blue", "unsharded and in use"},
                  {"orange", "reduce-scatter of its gradients"}});
  const double top = drawing.notes_end() + kGridHead;
  const auto x_of = [](int step) { return kGridLeft + step * kGridStep; };
  const auto row_of = [top](std::size_t block) {
    return top + static_cast<double>(block) * kGridRow;
  };
  const double grid_bottom = row_of(model.size());
  for (int step = 0; step < steps; ++step) {
    if (step % 2 == 0) {
      drawing.box({x_of(step), top - 6, kGridStep, grid_bottom - top + 6}, "band", 0);
    }
    drawing.text(x_of(step) + kGridStep / 2, top - 14, step_name(model, step), "middle small");
  }
  drawing.text(kGridLeft - 14, top - 14, "computes", "end small quiet");
  for (std::size_t block = 0; block < model.size(); ++block) {
    const double bytes =
        static_cast<double>(plan.flat.range(block).elements * size_of(plan.setup.dtype));
    drawing.text(Drawing::kMargin, row_of(block) + 18, model.block(block).name(), "strong small");
    drawing.text(Drawing::kMargin, row_of(block) + 31, format_bytes(bytes), "tiny quiet");
    drawing.line({Drawing::kMargin, row_of(block) + kGridRow - 1},
                 {width - Drawing::kMargin, row_of(block) + kGridRow - 1}, "line-grid");
  }
  for (const nn::Gather& gather : plan.gathers) {
    const double y = row_of(gather.unit) + 7;
    if (gather.starts < gather.needed) {
      const Drawing::Area area{x_of(gather.starts) + 2, y, kGridStep - 4, 25};
      drawing.box(area, "soft blue");
      drawing.label(area, "gather", "tiny");
    }
    for (int step = gather.needed; step <= gather.last; ++step) {
      const Drawing::Area area{x_of(step) + (step == gather.needed ? 2 : -2.0), y,
                               kGridStep - (step == gather.needed ? 4 : 0), 25};
      drawing.box(area, "blue");
      drawing.label(area, step < blocks ? "forward" : "backward", "tiny on");
    }
  }
  // A block's gradients leave when its backward has ended.
  for (std::size_t block = 0; block < model.size(); ++block) {
    if (plan.flat.range(block).elements == 0) continue;
    const int step = 2 * blocks - static_cast<int>(block);
    const Drawing::Area area{x_of(step) + 3, row_of(block) + 12, kGridStep - 12, 15};
    drawing.box(area, "orange", 2);
    drawing.label(area, "reduce", "tiny on");
  }
  drawing.line({x_of(blocks), top - 30}, {x_of(blocks), grid_bottom + 40}, "line-axis dashed");
  drawing.text((x_of(0) + x_of(blocks)) / 2, top - 32, "forward", "middle strong");
  drawing.text((x_of(blocks) + x_of(steps)) / 2, top - 32, "backward", "middle strong");

  drawing.text(Drawing::kMargin, grid_bottom + 26, "unsharded blocks", "strong small");
  for (int step = 0; step < steps; ++step) {
    const int count = unsharded_at(plan, step);
    for (int i = 0; i < count; ++i) {
      drawing.box({x_of(step) + kGridStep / 2 - 5.5 * count + 11 * i, grid_bottom + 16, 9, 12},
                  "blue", 2);
    }
  }
  return drawing.finish(grid_bottom + 56);
}

std::string gathers_text(const GatherTopic& topic) {
  const nn::MemoryPlan plan = plan_of_stage_3(topic);
  const nn::Model model = nn::make_model(topic.flags.shape());
  const int blocks = static_cast<int>(model.size());
  const auto moment = [&](int step) {
    return fmt::format("{} {}", step < blocks ? "forward" : "backward", step_name(model, step));
  };
  TextTable table;
  table.row({"block", "gathered during", "first needed by", "freed after"});
  for (const nn::Gather& gather : plan.gathers) {
    table.row({model.block(gather.unit).name(), moment(gather.starts), moment(gather.needed),
               moment(gather.last)});
  }
  return table.text();
}

}  // namespace

void add_explain_gathers(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "gathers", "When ZeRO stage 3 gathers the parameters of each block, and frees them");
  auto topic = std::make_shared<GatherTopic>();
  topic->flags.add_to(*command);
  command->add_option("-n,--ranks", topic->ranks, "Number of ranks")
      ->check(CLI::Range(2, kMostRanks))
      ->capture_default_str();
  command->add_option("--unsharded", topic->unsharded, "Blocks that may be unsharded at once")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain gathers --layers 4 --svg gathers.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    if (!topic->svg.empty()) return write_picture(topic->svg, draw_gathers(*topic));
    fmt::print("{}", gathers_text(*topic));
  });
}

}  // namespace lockstep::cli
