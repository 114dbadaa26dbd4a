// lockstep explain pipeline: the order of a step over pipeline stages, its bubble, stash and
// messages.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/cli/explain/pipeline_picture.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

// What a kind that divides more than stages and micro-batches is shown with.
constexpr int kShownChunks = 2;
constexpr int kShownSlices = 4;
constexpr int kShownBatches = 3;

struct PipelineTopic {
  std::string schedules;
  int stages = 4;
  int micro_batches = 8;
  std::optional<int> chunks;
  std::optional<int> slices;
  std::optional<int> batches;
  double forward = 1;
  double backward = 2;
  double message = 0;
  std::string svg;

  plan::StepTimes times() const {
    return {.forward = forward,
            .backward_input = backward / 2,
            .backward_weight = backward / 2,
            .message = message};
  }
};

// What the flags say; what they leave open shows what the kind is for.
plan::PipelineShape shape_for(const PipelineTopic& topic, const plan::PipelineKind& kind) {
  const auto shown = [&](std::string_view name, int count) {
    return kind.name == name ? count : 1;
  };
  return {.stages = topic.stages,
          .micro_batches = topic.micro_batches,
          .chunks = topic.chunks.value_or(shown("interleaved", kShownChunks)),
          .slices = topic.slices.value_or(shown("terapipe", kShownSlices)),
          .batches = topic.batches.value_or(shown("pipedream_2bw", kShownBatches))};
}

TimedSchedule timed_schedule(const PipelineTopic& topic, const plan::PipelineKind& kind) {
  TimedSchedule timed;
  timed.schedule = plan::make_step_schedule(kind, shape_for(topic, kind));
  timed.counts = plan::verify(timed.schedule);
  timed.table = plan::simulate(timed.schedule, topic.times());
  return timed;
}

// "4, 3, 2 and 1", or "4" when all stages hold the same.
std::string stash_text(const TimedSchedule& timed) {
  const std::vector<int>& stash = timed.counts.stash;
  const bool same = std::ranges::all_of(stash, [&](int held) { return held == stash[0]; });
  return same ? fmt::to_string(stash[0]) : join_ranks(stash);
}

// "of one chunk", for stashes of parts.
std::string stash_unit(const plan::PipelineShape& shape) {
  if (shape.chunks > 1) return fmt::format("micro-batches of a chunk, {} to a stage", shape.chunks);
  if (shape.slices > 1) return fmt::format("slices, {} to a micro-batch", shape.slices);
  return "micro-batches";
}

std::string describe_times(const PipelineTopic& topic) {
  std::string text =
      fmt::format("{}, {} micro-batch{}; forward takes {:.4g}, backward {:.4g}",
                  counted(static_cast<std::size_t>(topic.stages), "stage"), topic.micro_batches,
                  topic.micro_batches == 1 ? "" : "es", topic.forward, topic.backward);
  if (topic.message > 0) text += fmt::format(", a message {:.4g}", topic.message);
  return text;
}

void print_schedule(const PipelineTopic& topic, const plan::PipelineKind& kind) {
  const TimedSchedule timed = timed_schedule(topic, kind);
  const plan::PipelineShape& shape = timed.schedule.shape;
  fmt::print("{}: {}\n{}\n\n", kind.name, kind.summary, describe_times(topic));
  const std::string text = timetable_text(timed);
  fmt::print("{}\n",
             text.empty() ? "  the timetable is too long for text; --svg FILE draws it\n" : text);
  TextTable facts;
  facts.row({"bubble",
             fmt::format("{} of the time that a stage computes", percent(timed.table.bubble()))});
  if (timed.table.bubble_without_barrier() < timed.table.bubble() - 1e-9) {
    facts.row({"", fmt::format("{} when stages start their next step without a barrier",
                               percent(timed.table.bubble_without_barrier()))});
  }
  facts.row({"time", fmt::format("{:.4g}", timed.table.end)});
  facts.row({"stash", fmt::format("{} {}", stash_text(timed), stash_unit(shape))});
  facts.row({"messages", fmt::to_string(timed.counts.messages())});
  if (shape.batches > 1) facts.row({"batches", fmt::to_string(shape.batches)});
  if (timed.schedule.weight_versions > 1) {
    facts.row({"staleness", fmt::format("{}, with {} versions of the weights",
                                        timed.counts.staleness, timed.schedule.weight_versions)});
  }
  fmt::print("{}", facts.text());
}

void compare_schedules(const PipelineTopic& topic) {
  TextTable table("lrrrrl");
  table.row({"schedule", "bubble", "no barrier", "stash", "messages", ""});
  for (const plan::PipelineKind& kind : plan::pipeline_kinds()) {
    // Chunks, slices and batches are for the kinds that have them.
    PipelineTopic asked = topic;
    if (kind.name != "interleaved") asked.chunks.reset();
    if (kind.name != "terapipe") asked.slices.reset();
    if (kind.name != "pipedream_2bw") asked.batches.reset();
    const plan::PipelineShape shape = shape_for(asked, kind);
    if (const auto why = kind.refuses(shape)) {
      table.row({std::string(kind.name), "", "", "", "", *why});
      continue;
    }
    const TimedSchedule timed = timed_schedule(asked, kind);
    const double stash = *std::ranges::max_element(timed.counts.stash);
    table.row({std::string(kind.name), percent(timed.table.bubble()),
               percent(timed.table.bubble_without_barrier()),
               fmt::format("{:.4g}", stash / (shape.chunks * shape.slices)),
               fmt::to_string(timed.counts.messages() / shape.batches), std::string(kind.summary)});
  }
  fmt::print(
      "{}\n{}stash: whole micro-batches that the fullest stage holds; messages: of a batch; "
      "--schedule shows one\n",
      describe_times(topic), table.text());
}

void check_topic(const PipelineTopic& topic) {
  const auto check_time = [](double time, std::string_view flag, bool zero_is_fine) {
    if (std::isfinite(time) && (time > 0 || (zero_is_fine && time == 0))) return;
    fail(ErrorCode::kInvalidArgument, "{} is {}{}", flag, time,
         zero_is_fine ? "; 0 or more is fine" : "; more than 0 is fine");
  };
  check_time(topic.forward, "--forward", false);
  check_time(topic.backward, "--backward", false);
  check_time(topic.message, "--message", true);
}

void explain_pipeline(const PipelineTopic& topic) {
  check_topic(topic);
  if (topic.schedules.empty()) {
    if (topic.svg.empty()) return compare_schedules(topic);
    fail(ErrorCode::kInvalidArgument,
         "--svg draws schedules; choose them by --schedule 1f1b,zb_h1");
  }
  std::vector<const plan::PipelineKind*> kinds;
  for (const std::string_view name : split_text(topic.schedules, ',')) {
    kinds.push_back(&plan::find_pipeline_kind(trim(name)));
  }
  if (topic.svg.empty()) {
    for (const plan::PipelineKind* kind : kinds) {
      if (kind != kinds.front()) fmt::print("\n");
      print_schedule(topic, *kind);
    }
    return;
  }
  std::vector<TimedSchedule> schedules;
  for (const plan::PipelineKind* kind : kinds) schedules.push_back(timed_schedule(topic, *kind));
  write_picture(topic.svg, draw_timetables(schedules, describe_times(topic) + "."));
}

}  // namespace

void add_explain_pipeline(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand(
      "pipeline", "Schedules of a step over pipeline stages: timetable, bubble, stash, messages");
  auto topic = std::make_shared<PipelineTopic>();
  std::vector<std::string_view> names;
  for (const plan::PipelineKind& kind : plan::pipeline_kinds()) names.push_back(kind.name);
  command->add_option("-s,--schedule", topic->schedules,
                      fmt::format("What to show, or a list: {}; without it, all are compared",
                                  fmt::join(names, ", ")));
  command->add_option("-p,--stages", topic->stages, "Pipeline stages")->capture_default_str();
  command->add_option("-m,--micro-batches", topic->micro_batches, "Micro-batches of a batch")
      ->capture_default_str();
  command->add_option(
      "--chunks", topic->chunks,
      fmt::format("Chunks of a stage, with interleaved (default {})", kShownChunks));
  command->add_option(
      "--slices", topic->slices,
      fmt::format("Slices of a micro-batch's tokens, with terapipe (default {})", kShownSlices));
  command->add_option(
      "--batches", topic->batches,
      fmt::format("Batches behind each other, with pipedream_2bw (default {})", kShownBatches));
  command->add_option("--forward", topic->forward, "Time of a stage for forward of a micro-batch")
      ->capture_default_str();
  command
      ->add_option("--backward", topic->backward,
                   "Time for backward; input gradient and weight gradient take half each")
      ->capture_default_str();
  command->add_option("--message", topic->message, "Time of a message between stages")
      ->capture_default_str();
  add_svg_flag(*command, topic->svg);
  command->footer(
      "Examples:\n"
      "  lockstep explain pipeline --stages 8 --micro-batches 32    all schedules compared\n"
      "  lockstep explain pipeline --schedule 1f1b                  one of them, as a timetable\n"
      "  lockstep explain pipeline --schedule 1f1b,zb_h1 --svg pipeline.svg\n"
      "  lockstep explain pipeline --schedule interleaved --chunks 3");
  command->callback([topic, &exit_code] {
    exit_code = 0;
    explain_pipeline(*topic);
  });
}

}  // namespace lockstep::cli
