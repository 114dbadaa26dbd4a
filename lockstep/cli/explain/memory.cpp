// lockstep explain memory: the layout of a step's memory, address by time.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/number.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/model_flags.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/nn/models/models.h"

namespace lockstep::cli {
namespace {

constexpr double kMapLeft = 96;
constexpr double kMapHead = 74;  // for the legend
constexpr double kMapHeight = 470;
constexpr double kMapStep = 68;

std::string_view colour_of_class(std::string_view group) {
  if (group == "parameters") return "blue";
  if (group == "gradients") return "orange";
  if (group == "optimizer") return "purple";
  if (group.starts_with("activations")) return "teal";
  if (group == "workspace") return "rose";
  return "grey";
}

std::string draw_memory(const ModelFlags& flags) {
  const nn::MemoryPlan plan = flags.plan();
  const nn::Model model = nn::make_model(flags.shape());
  const int blocks = static_cast<int>(model.size());
  const int steps = 2 * blocks + 1;
  const double width = kMapLeft + steps * kMapStep + Drawing::kMargin + 10;
  Drawing drawing(width, "Every byte of a training step, by address and time",
                  "Rectangles are tensors: as wide as they live, as high as their bytes, placed by "
                  "the layout that a run allocates.");
  drawing.note(fmt::format(
      "{}. A rectangle is as wide as its tensor's life and as high as its bytes; two share "
      "addresses "
      "only where their lives do not meet. All fit into {}; no layout can need less than {}.",
      describe(flags), format_bytes(static_cast<double>(plan.layout.bytes)),
      format_bytes(static_cast<double>(plan.layout.lower_bound))));
  drawing.legend(Drawing::kMargin, drawing.notes_end() + 25,
                 {{"soft blue", "parameters"},
                  {"soft orange", "gradients"},
                  {"soft purple", "optimizer states"},
                  {"soft teal", "activations"},
                  {"soft grey", "outputs of blocks"},
                  {"soft rose", "workspace"}});
  const double scale = kMapHeight / static_cast<double>(plan.layout.bytes);
  const double top = drawing.notes_end() + kMapHead;
  const double bottom = top + kMapHeight;
  const auto x_of_step = [](int step) { return kMapLeft + step * kMapStep; };

  for (int step = 0; step < steps; ++step) {
    const int block = step < blocks ? step : 2 * blocks - 1 - step;
    const std::string name =
        step == 2 * blocks ? "update" : model.block(static_cast<std::size_t>(block)).name();
    if (step % 2 == 0) drawing.box({x_of_step(step), top, kMapStep, kMapHeight}, "band", 0);
    drawing.text(x_of_step(step) + kMapStep / 2, bottom + 17, name, "middle small");
  }
  drawing.text((x_of_step(0) + x_of_step(blocks)) / 2, bottom + 38, "forward", "middle strong");
  drawing.text((x_of_step(blocks) + x_of_step(2 * blocks)) / 2, bottom + 38, "backward",
               "middle strong");
  drawing.line({x_of_step(blocks), top - 8}, {x_of_step(blocks), bottom + 44}, "line-axis dashed");
  drawing.line({x_of_step(2 * blocks), top - 8}, {x_of_step(2 * blocks), bottom + 44},
               "line-axis dashed");

  for (std::size_t i = 0; i < plan.requests.size(); ++i) {
    const Request& request = plan.requests[i];
    const double height = static_cast<double>(request.bytes) * scale;
    const Drawing::Area area{x_of_step(request.first_step) + 1.5,
                             bottom - static_cast<double>(plan.layout.offsets[i]) * scale - height,
                             (request.last_step - request.first_step + 1) * kMapStep - 3, height};
    drawing.box(area, fmt::format("soft {}", colour_of_class(request.group)), height > 6 ? 2 : 0);
    if (height < 11) continue;
    const std::string with_size =
        fmt::format("{}  {}", request.name, format_bytes(static_cast<double>(request.bytes)));
    if (drawing.label(area, with_size, "tiny")) continue;
    if (drawing.label(area, request.name, "tiny")) continue;
    drawing.label(area, request.name.substr(request.name.rfind('.') + 1), "tiny");
  }
  // Round numbers of bytes along the left edge.
  constexpr int kMarks = 8;
  std::size_t unit = std::size_t{1} << 10;
  while (plan.layout.bytes / unit > kMarks) unit *= 2;
  for (std::size_t at = 0; at <= plan.layout.bytes; at += unit) {
    const double y = bottom - static_cast<double>(at) * scale;
    drawing.text(kMapLeft - 10, y + 4, format_bytes(static_cast<double>(at)), "end small quiet");
    drawing.line({kMapLeft - 6, y}, {kMapLeft, y}, "line-axis");
  }
  drawing.line({kMapLeft, top - 8}, {kMapLeft, bottom}, "line-axis");
  drawing.text(kMapLeft - 10, top - 16, "address", "end small quiet");
  drawing.text(width - Drawing::kMargin, bottom + 38, "time", "end small quiet");
  return drawing.finish(bottom + 58);
}

}  // namespace

void add_explain_memory(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "memory", "The memory of a training step: which tensor lies where, and when");
  struct MemoryTopic {
    ModelFlags flags;
    std::string svg;
  };
  auto topic = std::make_shared<MemoryTopic>();
  topic->flags.add_to(*command);
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain memory --layers 4 --svg memory.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    if (!topic->svg.empty()) return write_picture(topic->svg, draw_memory(topic->flags));
    fmt::print("{}\n{}", describe(topic->flags), text(topic->flags.plan()));
  });
}

}  // namespace lockstep::cli
