// lockstep explain symmetric: the all-reduce of ranks that map each other's memory.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/number.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/comm/shared/call_layout.h"

namespace lockstep::cli {
namespace {

constexpr int kMostSymmetricRanks = 8;
constexpr double kBuffersLeft = 150;
constexpr double kSliceWidth = 148;
constexpr double kBufferHeight = 26;
constexpr double kBufferPitch = 34;
constexpr double kInputsHead = 56;
constexpr double kArrowRoom = 40;
constexpr double kAdderHeight = 46;

struct SymmetricTopic {
  int ranks = 4;
  std::size_t elements = 1024;
  std::string svg;
};

std::string_view colour_of_rank(int rank) {
  constexpr std::string_view kColours[] = {"blue", "orange", "teal", "purple", "rose", "grey"};
  return kColours[static_cast<std::size_t>(rank) % std::size(kColours)];
}

// Where a slice lies in a buffer as wide as all of them.
Drawing::Area slice_area(const SymmetricTopic& topic, double y, int slice) {
  const shared::Range range = shared::part_of(topic.elements, topic.ranks, slice);
  const double scale = kSliceWidth * topic.ranks / static_cast<double>(topic.elements);
  return {kBuffersLeft + static_cast<double>(range.begin) * scale + 1, y,
          static_cast<double>(range.size()) * scale - 2, kBufferHeight};
}

void draw_buffers(Drawing& drawing, const SymmetricTopic& topic, double top, bool sums) {
  for (int rank = 0; rank < topic.ranks; ++rank) {
    const double y = top + rank * kBufferPitch;
    drawing.text(kBuffersLeft - 14, y + 17,
                 fmt::format("{} of rank {}", sums ? "output" : "input", rank), "end small strong");
    for (int slice = 0; slice < topic.ranks; ++slice) {
      const Drawing::Area area = slice_area(topic, y, slice);
      drawing.box(area, fmt::format("{}{}", sums ? "" : "soft ", colour_of_rank(slice)), 2);
      drawing.label(area, fmt::format("{} {}", sums ? "sum of slice" : "slice", slice),
                    sums ? "small on" : "small");
    }
  }
}

std::string draw_symmetric(const SymmetricTopic& topic) {
  const double width = std::max(kBuffersLeft + kSliceWidth * topic.ranks + Drawing::kMargin, 720.0);
  Drawing drawing(width, "All-reduce in symmetric memory: rank r adds slice r for everyone",
                  "Inputs of all ranks above, outputs below. Rank r reads slice r of every input, "
                  "adds in registers and stores the sum into every output.");
  drawing.note(fmt::format(
      "{} ranks of one node map each other's buffers ({} elements each). Nothing is copied, "
      "nothing "
      "is sent: a rank loads its column of all inputs, adds in rank order and stores the sum into "
      "all outputs.",
      topic.ranks, format_count(topic.elements)));
  const double top = drawing.notes_end() + kInputsHead;
  drawing.text(kBuffersLeft, top - 14, "1. all wait until every input is ready", "small quiet");
  draw_buffers(drawing, topic, top, false);
  const double inputs_end = top + topic.ranks * kBufferPitch - (kBufferPitch - kBufferHeight);
  const double adders = inputs_end + kArrowRoom;
  const double outputs = adders + kAdderHeight + kArrowRoom;
  for (int rank = 0; rank < topic.ranks; ++rank) {
    const Drawing::Area column = slice_area(topic, adders, rank);
    const Drawing::Area box{column.x + 6, column.y, column.width - 12, kAdderHeight};
    drawing.arrow({box.middle(), inputs_end + 4}, {box.middle(), box.y - 4}, colour_of_rank(rank),
                  0, "thick");
    drawing.box(box, fmt::format("card thick line-{}", colour_of_rank(rank)), 8);
    drawing.text(box.middle(), box.y + 20, fmt::format("rank {} adds", rank),
                 "middle small strong");
    drawing.text(box.middle(), box.y + 36, "in registers", "middle small quiet");
    drawing.arrow({box.middle(), box.bottom() + 4}, {box.middle(), outputs - 4},
                  colour_of_rank(rank), 0, "thick");
  }
  drawing.text(kBuffersLeft - 14, adders + 28, "2. all at once", "end small quiet");
  draw_buffers(drawing, topic, outputs, true);
  const double bottom = outputs + topic.ranks * kBufferPitch;
  drawing.text(kBuffersLeft, bottom + 14,
               "3. all wait until every output is written; every rank has the same bits",
               "small quiet");
  return drawing.finish(bottom + 36);
}

std::string symmetric_text(const SymmetricTopic& topic) {
  TextTable table("lrr");
  table.row({"rank", "first element", "elements"});
  for (int rank = 0; rank < topic.ranks; ++rank) {
    const shared::Range range = shared::part_of(topic.elements, topic.ranks, rank);
    table.row({fmt::to_string(rank), format_count(range.begin), format_count(range.size())});
  }
  return fmt::format(
      "Every rank reads its slice of all inputs, adds in registers and stores into all "
      "outputs.\n{}",
      table.text());
}

}  // namespace

void add_explain_symmetric(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "symmetric", "The all-reduce of ranks that map each other's memory: who adds which slice");
  auto topic = std::make_shared<SymmetricTopic>();
  command->add_option("-n,--ranks", topic->ranks, "Number of ranks")->capture_default_str();
  command->add_option("--elements", topic->elements, "Elements of the vector")
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain symmetric --ranks 4 --svg symmetric.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    if (topic->ranks < 1 || topic->ranks > kMostSymmetricRanks) {
      fail(ErrorCode::kInvalidArgument, "--ranks is 1 to {}", kMostSymmetricRanks);
    }
    if (topic->elements < 1) fail(ErrorCode::kInvalidArgument, "--elements is 1 or more");
    if (!topic->svg.empty()) return write_picture(topic->svg, draw_symmetric(*topic));
    fmt::print("{}", symmetric_text(*topic));
  });
}

}  // namespace lockstep::cli
