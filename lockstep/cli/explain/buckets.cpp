// lockstep explain buckets: the buckets of DDP, and how their all-reduces hide behind backward.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
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
#include "lockstep/cli/number_lists.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/comm/schedule/price_list.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/parallel/ddp/ddp.h"

namespace lockstep::cli {
namespace {

struct BucketTopic {
  ModelFlags flags;
  int ranks = 8;
  parallel::ParallelOptions parallel;
  double tflops = 100;
  std::string network = "alpha=10us,bandwidth=100Gbit";
  std::string svg;
};

// An all-reduce of one bucket: ready, and on the wire.
struct BucketTrip {
  parallel::Bucket bucket;
  double bytes = 0;
  double ready = 0;
  double begin = 0;
  double end = 0;
};

struct BucketStory {
  nn::MemoryPlan plan;
  std::vector<BucketTrip> trips;  // in the order in which they leave
  double end() const { return trips.empty() ? 0 : trips.back().end; }
};

BucketStory story_of(const BucketTopic& topic, const StepClock& clock, const nn::MemoryPlan& plan,
                     bool overlaps) {
  BucketStory story{.plan = plan, .trips = {}};
  const schedule::Network network = schedule::parse_network(topic.network);
  const schedule::PriceList prices(Collective::kAllReduce, {.ranks = topic.ranks},
                                   network.with_ranks(topic.ranks));
  double free = 0;  // when the communication thread is
  for (const parallel::Bucket& bucket :
       parallel::Ddp::buckets(topic.parallel, {.workers = topic.ranks}, plan)) {
    const auto bytes = static_cast<double>(bucket.range.elements * size_of(plan.setup.gradient));
    BucketTrip trip{.bucket = bucket, .bytes = bytes};
    trip.ready =
        overlaps ? clock.finished(plan.flat, bucket.ready_after, bucket.range.end()) : clock.end();
    trip.begin = std::max(trip.ready, free);
    trip.end = free = trip.begin + prices.at(bytes).front().seconds;
    story.trips.push_back(trip);
  }
  return story;
}

std::size_t block_of(const nn::FlatParameters& flat, std::size_t element) {
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    const nn::FlatRange range = flat.range(block);
    if (element >= range.first && element < range.end()) return block;
  }
  return 0;
}

std::vector<LaneSpan> compute_spans(const nn::Model& model, const StepClock& clock) {
  std::vector<LaneSpan> spans;
  for (std::size_t block = 0; block < model.size(); ++block) {
    spans.push_back({clock.forward_begin(block), clock.forward_end(block),
                     model.block(block).name(),
                     fmt::format("soft {}", block_colour(block, model.size())), "tiny"});
  }
  for (std::size_t block = model.size(); block-- > 0;) {
    spans.push_back({clock.backward_begin(block), clock.backward_end(block),
                     model.block(block).name(), block_colour(block, model.size())});
  }
  std::erase_if(spans, [](const LaneSpan& span) { return span.end <= span.begin; });
  return spans;
}

void draw_panel(Drawing& drawing, const TimeAxis& axis, double y, const std::string& title,
                const nn::Model& model, const StepClock& clock, const BucketStory& story) {
  drawing.text(Drawing::kMargin, y - 12, title, "strong");
  draw_lane(drawing, axis, y, 26, "compute", compute_spans(model, clock));
  std::vector<LaneSpan> wire;
  for (std::size_t i = 0; i < story.trips.size(); ++i) {
    const BucketTrip& trip = story.trips[i];
    const std::size_t block = block_of(story.plan.flat, trip.bucket.range.first);
    wire.push_back({trip.begin, trip.end, fmt::to_string(i), block_colour(block, model.size())});
    // The moment at which it is ready, where it does not have to wait for others.
    if (trip.begin == trip.ready) {
      drawing.line({axis.x(trip.ready), y + 26}, {axis.x(trip.begin), y + 42}, "line-axis");
    }
  }
  draw_lane(drawing, axis, y + 42, 26, "all-reduce", wire);
  const double exposed = std::max(story.end() - clock.end(), 0.0);
  std::vector<LaneSpan> waits;
  if (exposed > 0) {
    waits.push_back(
        {clock.end(), story.end(), fmt::format("exposed {}", format_seconds(exposed)), "rose"});
  }
  draw_lane(drawing, axis, y + 76, 20, "waiting", waits);
}

// The flat buffer of gradients with its blocks, and the buckets below.
void draw_flat_buffer(Drawing& drawing, const TimeAxis& axis, double y, const nn::Model& model,
                      const BucketStory& story) {
  const nn::FlatParameters& flat = story.plan.flat;
  const auto x_of = [&](std::size_t element) {
    return axis.left + (axis.right - axis.left) * static_cast<double>(element) /
                           static_cast<double>(flat.elements());
  };
  drawing.text(axis.left - 12, y + 17, "gradients", "end small quiet");
  drawing.text(axis.left - 12, y + 45, "buckets", "end small quiet");
  for (std::size_t block = 0; block < flat.blocks(); ++block) {
    const nn::FlatRange range = flat.range(block);
    if (range.elements == 0) continue;
    const Drawing::Area area{x_of(range.first), y, x_of(range.end()) - x_of(range.first) - 0.8, 26};
    drawing.box(area, block_colour(block, model.size()), 2);
    drawing.label(area, model.block(block).name(), "tiny on");
  }
  for (std::size_t i = 0; i < story.trips.size(); ++i) {
    const nn::FlatRange range = story.trips[i].bucket.range;
    const Drawing::Area area{x_of(range.first), y + 31, x_of(range.end()) - x_of(range.first) - 0.8,
                             22};
    drawing.box(area,
                fmt::format("soft {}", block_colour(block_of(flat, range.first), model.size())), 2);
    const std::string size = format_bytes(story.trips[i].bytes);
    if (!drawing.label(area, fmt::format("{}: {}", i, size), "tiny")) {
      drawing.label(area, fmt::to_string(i), "tiny");
    }
  }
}

std::string draw_buckets(const BucketTopic& topic) {
  const nn::MemoryPlan plan = topic.flags.plan();
  const nn::Model model = nn::make_model(topic.flags.shape());
  const StepClock clock(plan, topic.tflops * 1e12);
  const BucketStory hidden = story_of(topic, clock, plan, true);
  BucketTopic plain = topic;
  plain.parallel.overlap = false;
  const BucketStory bare = story_of(plain, clock, plan, false);
  constexpr double kWidth = 1000;
  const TimeAxis axis{150, kWidth - Drawing::kMargin, std::max(hidden.end(), bare.end()) * 1.01};
  Drawing drawing(
      kWidth, "DDP: buckets of gradients are reduced while backward runs",
      "The flat buffer of gradients cut into buckets, and two timelines of a step: with "
      "overlap the all-reduces run beside backward, without it they come after.");
  drawing.note(fmt::format("{}; {} ranks at {:.4g} TFLOP/s each; {}.", describe(topic.flags),
                           topic.ranks, topic.tflops,
                           describe(schedule::parse_network(topic.network))));
  drawing.note(
      "Backward fills the flat buffer of gradients from the left. A bucket leaves as soon as "
      "backward has finished with all of it; its number is the order.");
  const double top = drawing.notes_end() + 26;
  draw_flat_buffer(drawing, axis, top, model, hidden);
  draw_time_axis(drawing, axis, top + 84, top + 364);
  draw_panel(drawing, axis, top + 106, "with overlap", model, clock, hidden);
  draw_panel(drawing, axis, top + 256, "without overlap", model, clock, bare);
  drawing.text(axis.x(clock.forward_seconds() / 2), top + 96, "forward", "middle small quiet");
  drawing.text(axis.x((clock.forward_seconds() + clock.end()) / 2), top + 96, "backward",
               "middle small quiet");
  return drawing.finish(top + 400);
}

std::string buckets_text(const BucketTopic& topic) {
  const nn::MemoryPlan plan = topic.flags.plan();
  const nn::Model model = nn::make_model(topic.flags.shape());
  const StepClock clock(plan, topic.tflops * 1e12);
  const BucketStory story = story_of(topic, clock, plan, true);
  TextTable table("rrlrrr");
  table.row({"bucket", "bytes", "ready after backward of", "ready", "leaves", "reduced"});
  for (std::size_t i = 0; i < story.trips.size(); ++i) {
    const BucketTrip& trip = story.trips[i];
    table.row({fmt::to_string(i), format_bytes(trip.bytes),
               model.block(trip.bucket.ready_after).name(), format_seconds(trip.ready),
               format_seconds(trip.begin), format_seconds(trip.end)});
  }
  return fmt::format("{}, {} ranks\n{}backward ends at {}, {} of communication are exposed\n",
                     describe(topic.flags), topic.ranks, table.text(), format_seconds(clock.end()),
                     format_seconds(std::max(story.end() - clock.end(), 0.0)));
}

}  // namespace

void add_explain_buckets(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "buckets", "The buckets of DDP, and how their all-reduces hide behind backward");
  auto topic = std::make_shared<BucketTopic>();
  topic->flags.add_to(*command);
  command->add_option("-n,--ranks", topic->ranks, "Number of ranks")
      ->check(CLI::Range(2, kMostRanks))
      ->capture_default_str();
  command->add_option("--bucket-mb", topic->parallel.bucket_mb, "Largest bucket, in MiB")
      ->capture_default_str();
  command->add_option("--tflops", topic->tflops, "What a rank computes, in TFLOP/s")
      ->capture_default_str();
  command->add_option("--network", topic->network, "The network, as for --cost")
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer("Example:\n  lockstep explain buckets --layers 4 --ranks 8 --svg buckets.svg");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    check_amount("--tflops", topic->tflops);
    check_amount("--bucket-mb", topic->parallel.bucket_mb);
    if (!topic->svg.empty()) return write_picture(topic->svg, draw_buckets(*topic));
    fmt::print("{}", buckets_text(*topic));
  });
}

}  // namespace lockstep::cli
