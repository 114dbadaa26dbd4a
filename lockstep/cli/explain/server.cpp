// lockstep explain server: slices on their way to parameter servers and back, by schedule.
//
// A worker's link carries one slice at a time in each direction. Which one goes next is decided by
// the classes that a run uses: PushQueue on the way there, priority_of() on the way back.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/model_flags.h"
#include "lockstep/cli/explain/step_clock.h"
#include "lockstep/cli/explain/timeline_lane.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/parallel/server/slices/served_layout.h"
#include "lockstep/parallel/server/worker/push_queue.h"

namespace lockstep::cli {
namespace {

using parallel::SliceSchedule;

struct ServerTopic {
  ModelFlags flags;
  int servers = 2;
  double slice_mb = parallel::ServerOptions().slice_mb;
  double credit_mb = parallel::ServerOptions().credit_mb;
  double tflops = 100;
  std::string bandwidth = "100Gbit";
  std::string svg;
};

struct Travel {
  double begin = 0;
  double end = 0;
};

struct SliceTrip {
  std::size_t block = 0;
  double ready = 0;
  Travel push;
  Travel pull;
};

struct ServerStory {
  std::vector<SliceTrip> trips;   // by slice
  std::vector<LaneSpan> forward;  // of the next step
  double next_forward = 0;        // when it begins
  double end = 0;
};

constexpr double kNever = std::numeric_limits<double>::infinity();

// The worker's link towards the servers: one slice after the other, the queue decides which.
void push_all(const ServerTopic& topic, SliceSchedule schedule,
              const std::vector<parallel::Slice>& slices, const std::vector<double>& bytes,
              double bandwidth, std::vector<SliceTrip>& trips) {
  parallel::PushQueue queue(topic.servers, static_cast<std::size_t>(topic.credit_mb * (1 << 20)));
  std::vector<bool> added(slices.size());
  double now = 0;
  for (std::size_t sent = 0; sent < slices.size(); ++sent) {
    std::optional<std::size_t> next;
    while (!next) {
      double soonest = kNever;
      for (std::size_t i = 0; i < slices.size(); ++i) {
        if (added[i]) continue;
        if (trips[i].ready > now) {
          soonest = std::min(soonest, trips[i].ready);
          continue;
        }
        added[i] = true;
        queue.add(i, parallel::priority_of(slices[i], schedule), slices[i].server,
                  static_cast<std::size_t>(bytes[i]));
      }
      next = queue.next();
      if (!next) now = soonest;
    }
    trips[*next].push.begin = now;
    now += bytes[*next] / bandwidth;
    trips[*next].push.end = now;
    queue.taken(slices[*next].server, static_cast<std::size_t>(bytes[*next]));
  }
}

// The way back: of the slices that the servers have updated the most urgent one comes first.
void pull_all(SliceSchedule schedule, const std::vector<parallel::Slice>& slices,
              const std::vector<double>& bytes, double bandwidth, std::vector<SliceTrip>& trips) {
  double all_pushed = 0;
  for (const SliceTrip& trip : trips) all_pushed = std::max(all_pushed, trip.push.end);
  std::vector<bool> back(slices.size());
  double now = 0;
  for (std::size_t pulled = 0; pulled < slices.size(); ++pulled) {
    std::optional<std::size_t> best;
    double soonest = kNever;
    for (std::size_t i = 0; i < slices.size(); ++i) {
      if (back[i]) continue;
      const double ready = schedule == SliceSchedule::kFifo ? all_pushed : trips[i].push.end;
      soonest = std::min(soonest, ready);
      if (ready > now) continue;
      if (!best || parallel::priority_of(slices[i], schedule) <
                       parallel::priority_of(slices[*best], schedule)) {
        best = i;
      }
    }
    if (!best) {
      now = soonest;
      --pulled;
      continue;
    }
    back[*best] = true;
    trips[*best].pull.begin = now;
    now += bytes[*best] / bandwidth;
    trips[*best].pull.end = now;
  }
}

ServerStory story_of(const ServerTopic& topic, const nn::Model& model, const nn::MemoryPlan& plan,
                     const StepClock& clock, SliceSchedule schedule) {
  const std::vector<parallel::Slice> slices =
      parallel::cut_slices(plan.flat, topic.slice_mb, false, topic.servers);
  const double bandwidth = parse_bytes_per_second(topic.bandwidth);
  ServerStory story;
  std::vector<double> bytes;
  for (const parallel::Slice& slice : slices) {
    bytes.push_back(static_cast<double>(slice.range.elements * size_of(plan.setup.gradient)));
    const double ready = schedule == SliceSchedule::kFifo
                             ? clock.end()
                             : clock.finished(plan.flat, slice.block, slice.range.end());
    // The picture begins where backward does.
    story.trips.push_back({.block = slice.block, .ready = ready - clock.forward_seconds()});
  }
  push_all(topic, schedule, slices, bytes, bandwidth, story.trips);
  pull_all(schedule, slices, bytes, bandwidth, story.trips);
  double now = clock.end() - clock.forward_seconds();
  for (std::size_t block = 0; block < model.size(); ++block) {
    for (const SliceTrip& trip : story.trips) {
      if (trip.block == block) now = std::max(now, trip.pull.end);
    }
    if (block == 0) story.next_forward = now;
    const double seconds = clock.forward_end(block) - clock.forward_begin(block);
    if (seconds > 0) {
      story.forward.push_back({now, now + seconds, model.block(block).name(),
                               fmt::format("soft {}", block_colour(block, model.size())), "tiny"});
    }
    now += seconds;
  }
  story.end = now;
  return story;
}

// Slices of one block that follow each other are one box.
std::vector<LaneSpan> slices_as_spans(const std::vector<SliceTrip>& trips, std::size_t blocks,
                                      Travel SliceTrip::*way) {
  constexpr double kNoGap = 1e-9;
  std::vector<SliceTrip> sorted = trips;
  std::ranges::stable_sort(sorted, {}, [&](const SliceTrip& trip) { return (trip.*way).begin; });
  std::vector<LaneSpan> spans;
  for (const SliceTrip& trip : sorted) {
    const Travel& travel = trip.*way;
    const std::string colour = block_colour(trip.block, blocks);
    if (!spans.empty() && spans.back().style == colour &&
        travel.begin - spans.back().end < kNoGap) {
      spans.back().end = travel.end;
    } else {
      spans.push_back({travel.begin, travel.end, "", colour});
    }
  }
  return spans;
}

void draw_panel(Drawing& drawing, const TimeAxis& axis, double y, std::string_view what,
                const nn::Model& model, const StepClock& clock, const ServerStory& story) {
  drawing.text(Drawing::kMargin, y - 10, what, "strong");
  std::vector<LaneSpan> compute;
  for (std::size_t block = model.size(); block-- > 0;) {
    const double begin = clock.backward_begin(block) - clock.forward_seconds();
    const double end = clock.backward_end(block) - clock.forward_seconds();
    if (end > begin) {
      compute.push_back({begin, end, model.block(block).name(), block_colour(block, model.size())});
    }
  }
  compute.insert(compute.end(), story.forward.begin(), story.forward.end());
  draw_lane(drawing, axis, y, 24, "compute", compute);
  draw_lane(drawing, axis, y + 30, 18, "push",
            slices_as_spans(story.trips, model.size(), &SliceTrip::push));
  draw_lane(drawing, axis, y + 54, 18, "pull",
            slices_as_spans(story.trips, model.size(), &SliceTrip::pull));
  const double x = axis.x(story.end);
  drawing.line({x, y - 4}, {x, y + 76}, "line-rose");
  drawing.text(x - 5, y + 67, format_seconds(story.end), "end small ink-rose strong");
}

std::string draw_server(const ServerTopic& topic) {
  const nn::MemoryPlan plan = topic.flags.plan();
  const nn::Model model = nn::make_model(topic.flags.shape());
  const StepClock clock(plan, topic.tflops * 1e12);
  constexpr SliceSchedule kSchedules[] = {SliceSchedule::kFifo, SliceSchedule::kWfbp,
                                          SliceSchedule::kPriority};
  constexpr std::string_view kWhat[] = {
      "fifo: everything after backward, in the order it was made",
      "wfbp: as soon as backward has finished with a slice, in that order",
      "priority: of the slices that are ready, the one that forward needs first goes first"};
  std::vector<ServerStory> stories;
  double longest = 0;
  for (const SliceSchedule schedule : kSchedules) {
    stories.push_back(story_of(topic, model, plan, clock, schedule));
    longest = std::max(longest, stories.back().end);
  }
  constexpr double kWidth = 1000;
  constexpr double kPanel = 120;
  const TimeAxis axis{104, kWidth - Drawing::kMargin, longest * 1.01};
  Drawing drawing(
      kWidth, "Parameter servers: slices that forward needs first overtake the others",
      "Three timelines of a worker from backward to the end of the next forward, one for "
      "each order of pushing gradients and pulling parameters.");
  drawing.note(
      fmt::format("{}; {} servers, {}, {:.4g} TFLOP/s and {} each way a worker. Backward makes "
                  "gradients from the "
                  "last block to the first, but the next forward needs the first block first. A "
                  "slice is pushed "
                  "as gradients, updated by its server, and pulled as parameters.",
                  describe(topic.flags), topic.servers, counted(stories[0].trips.size(), "slice"),
                  topic.tflops, format_bytes_per_second(parse_bytes_per_second(topic.bandwidth))));
  std::vector<Drawing::Key> keys;
  for (std::size_t block = 0; block < model.size(); ++block) {
    keys.push_back({block_colour(block, model.size()), model.block(block).name()});
  }
  keys.push_back({"soft grey", "pale: the next forward"});
  drawing.legend(Drawing::kMargin, drawing.notes_end() + 25, keys);
  const double top = drawing.notes_end() + 74;
  draw_time_axis(drawing, axis, top - 8, top + 3 * kPanel - 34);
  for (std::size_t i = 0; i < std::size(kSchedules); ++i) {
    draw_panel(drawing, axis, top + static_cast<double>(i) * kPanel, kWhat[i], model, clock,
               stories[i]);
  }
  return drawing.finish(top + 3 * kPanel + 4);
}

std::string server_text(const ServerTopic& topic) {
  const nn::MemoryPlan plan = topic.flags.plan();
  const nn::Model model = nn::make_model(topic.flags.shape());
  const StepClock clock(plan, topic.tflops * 1e12);
  TextTable table("lrr");
  table.row({"schedule", "next forward begins", "and ends"});
  for (const SliceSchedule schedule :
       {SliceSchedule::kFifo, SliceSchedule::kWfbp, SliceSchedule::kPriority}) {
    const ServerStory story = story_of(topic, model, plan, clock, schedule);
    table.row({std::string(name(schedule)), format_seconds(story.next_forward),
               format_seconds(story.end)});
  }
  return fmt::format("{}, {} servers; times from the begin of backward\n{}", describe(topic.flags),
                     topic.servers, table.text());
}

}  // namespace

void add_explain_server(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "server", "Slices on their way to parameter servers and back: fifo, wfbp and priority");
  auto topic = std::make_shared<ServerTopic>();
  topic->flags.add_to(*command);
  command->add_option("--servers", topic->servers, "Number of servers")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  command->add_option("--slice-mb", topic->slice_mb, "Largest slice, in MiB of f32")
      ->capture_default_str();
  command->add_option("--credit-mb", topic->credit_mb, "MiB on their way to one server, at most")
      ->capture_default_str();
  command->add_option("--tflops", topic->tflops, "What a worker computes, in TFLOP/s")
      ->capture_default_str();
  command->add_option("--bandwidth", topic->bandwidth, "Of the worker's link, each way")
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain server --layers 4 --svg server.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    check_amount("--tflops", topic->tflops);
    check_amount("--slice-mb", topic->slice_mb);
    check_amount("--credit-mb", topic->credit_mb);
    if (!topic->svg.empty()) return write_picture(topic->svg, draw_server(*topic));
    fmt::print("{}", server_text(*topic));
  });
}

}  // namespace lockstep::cli
