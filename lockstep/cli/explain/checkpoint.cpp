// lockstep explain checkpoint: how a checkpoint is committed.
//
// Saves real checkpoints of a tiny model into a temporary folder and watches what happens there
// (folder_watch.h). So the picture shows the order of names that a run's folder goes through.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/base/text/drawing.h"
#include "lockstep/cli/explain/folder_watch.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/nn/models/models.h"
#include "lockstep/train/checkpoint/checkpoint.h"
#include "lockstep/train/checkpoint/manifest.h"
#include "lockstep/train/checkpoint/unfinished.h"

namespace lockstep::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kStepsBetween = 1000;

// What a run's checkpoints/ holds at some moment.
struct FolderMoment {
  std::string title;
  std::string what;
  std::string after;               // the second line
  std::set<std::string> folders;   // by name; staged ones without the process's number
  std::vector<std::string> files;  // of the newest
  std::string newest_complete;
};

// ".step-00003000.4711-0.staged" has the number of the process in it.
std::string stable_name(const std::string& name) {
  if (!io::is_staged_name(name)) return name;
  const auto begin = name.rfind('.', name.rfind('.') - 1);
  return name.substr(0, begin) + ".PID" + name.substr(name.find('-', begin));
}

class CheckpointStory {
 public:
  CheckpointStory() : folder_(scratch_.path()), names_(scratch_.path() / train::kCheckpoints) {
    replica_.initialise(1);
    save_earlier(kStepsBetween);
    save_earlier(2 * kStepsBetween);
  }

  std::vector<FolderMoment> tell() {
    for (const std::int64_t step : folder_.steps()) {
      present_.insert(folder_.path(step).filename().string());
    }
    watch_.watch(names_);
    train::UnfinishedCheckpoint checkpoint(folder_, 3 * kStepsBetween);
    staged_ = checkpoint.path().filename().string();
    watch_.watch(checkpoint.path());
    replay();
    remember("1  stage", "a folder of another name,", "locked by this process");
    const io::FileHash hash = checkpoint.write(replica_);
    replay();
    remember("2  write states", "hashed while it is written,", "then fsync");
    checkpoint.commit(extras_of(3 * kStepsBetween), std::span(&hash, 1));
    folder_.remove_old(3 * kStepsBetween, {.keep_last = 2});
    replay();
    return std::move(moments_);
  }

 private:
  static plan::ModelShape tiny_shape() {
    plan::ModelShape shape = plan::usual_shape(plan::Family::kGpt2);
    shape.name = "tiny";
    shape.vocabulary = 64;
    shape.positions = 16;
    shape.hidden = 32;
    shape.layers = 1;
    shape.heads = shape.kv_heads = 2;
    shape.feed_forward = plan::usual_feed_forward(shape.family, shape.hidden);
    return shape;
  }
  static nn::MemoryPlan tiny_plan(const Ops& ops) {
    return nn::plan_memory(nn::make_model(tiny_shape()), {.shape = {.batch = 1, .sequence = 16}},
                           ops, nn::OptimizerState::kMoments);
  }
  static train::CheckpointExtras extras_of(std::int64_t step) {
    return {.state = {.steps = step, .updates = step}, .config = "# resolved\n", .tokenizer = "{}"};
  }

  void save_earlier(std::int64_t step) {
    folder_.save(replica_, extras_of(step), {.keep_last = 2});
  }

  void remember(std::string title, std::string what, std::string after) {
    FolderMoment moment{.title = std::move(title),
                        .what = std::move(what),
                        .after = std::move(after),
                        .folders = {},
                        .files = files_,
                        .newest_complete = {}};
    for (const std::string& name : present_) {
      moment.folders.insert(stable_name(name));
      if (!io::is_staged_name(name)) {
        moment.newest_complete = std::max(moment.newest_complete, name);
      }
    }
    moments_.push_back(std::move(moment));
  }

  // Follows the events, and remembers the moments of a commit on the way.
  void replay() {
    using Kind = FolderEvent::Kind;
    for (const FolderEvent& event : watch_.take()) {
      const bool of_names = event.folder == names_;
      if (!of_names) {
        if (event.kind != Kind::kWritten) continue;
        files_.push_back(event.name);
        if (event.name == train::kManifestFile) {
          remember("3  write the rest", "the manifest, last, has the", "hashes of all; fsync");
        }
        continue;
      }
      if (event.kind == Kind::kCreated || event.kind == Kind::kMovedTo) present_.insert(event.name);
      if (event.kind == Kind::kMovedFrom || event.kind == Kind::kDeleted)
        present_.erase(event.name);
      const bool is_commit = event.kind == Kind::kMovedTo && !io::is_staged_name(event.name);
      if (is_commit)
        remember("4  rename", "one system call commits it;", "then fsync of the parent");
      if (event.kind == Kind::kDeleted && moments_.back().title.starts_with('4')) {
        remember("5  remove old ones", "renamed first, so that none", "is ever half there");
      }
    }
  }

  std::unique_ptr<Ops> ops_ = make_reference_ops();
  nn::Replica replica_{nn::make_model(tiny_shape()), tiny_plan(*ops_), *ops_};
  ScratchFolder scratch_;
  train::CheckpointFolder folder_;
  fs::path names_;
  FolderWatch watch_;
  std::string staged_;
  std::set<std::string> present_;
  std::vector<std::string> files_;
  std::vector<FolderMoment> moments_;
};

constexpr double kMomentWidth = 200;
constexpr double kMomentGap = 12;
constexpr double kMomentHeight = 292;

void draw_moment(Drawing& drawing, const FolderMoment& moment, double x, double top) {
  drawing.box({x, top, kMomentWidth, kMomentHeight}, "band", 8);
  drawing.text(x + 12, top + 24, moment.title, "strong");
  drawing.text(x + 12, top + 43, moment.what, "small quiet");
  drawing.text(x + 12, top + 58, moment.after, "small quiet");
  double y = top + 74;
  // Complete folders in their order, what is staged below them.
  std::vector<std::string> names(moment.folders.begin(), moment.folders.end());
  std::ranges::stable_partition(names, [](const std::string& name) { return name.front() != '.'; });
  for (const std::string& name : names) {
    const bool staged = name.front() == '.';
    const bool open = staged || (name == moment.newest_complete && moment.title.front() >= '4');
    const std::size_t files = open ? moment.files.size() : 0;
    const double height = 26 + 17.0 * static_cast<double>(files);
    drawing.box({x + 10, y, kMomentWidth - 20, height}, staged ? "ghost orange" : "soft teal", 5);
    drawing.text(x + 20, y + 17, name, staged ? "tiny ink-orange" : "small ink-teal strong");
    for (std::size_t i = 0; i < files; ++i) {
      drawing.text(x + 32, y + 34 + 17 * static_cast<double>(i), moment.files[i], "small");
    }
    y += height + 6;
  }
  drawing.text(x + 12, top + kMomentHeight - 26, "killed now, a run resumes from", "tiny quiet");
  drawing.text(x + 12, top + kMomentHeight - 11, moment.newest_complete, "small strong");
}

std::string draw_checkpoint(const std::vector<FolderMoment>& moments) {
  const auto count = static_cast<double>(moments.size());
  const double width = 2 * Drawing::kMargin + count * kMomentWidth + (count - 1) * kMomentGap;
  Drawing drawing(width, "A checkpoint is there whole, or not at all",
                  "The folder of a run's checkpoints at five moments of a save: staged, states "
                  "written, manifest written, renamed, old ones removed.");
  drawing.note(
      "A save of step 3000 that keeps the last two, seen as the names in checkpoints/. "
      "Dashed: staged, not a checkpoint yet. Whatever ends the process, a complete one "
      "is left.");
  const double top = drawing.notes_end() + 24;
  for (std::size_t i = 0; i < moments.size(); ++i) {
    const double x = Drawing::kMargin + static_cast<double>(i) * (kMomentWidth + kMomentGap);
    draw_moment(drawing, moments[i], x, top);
  }
  return drawing.finish(top + kMomentHeight + 24);
}

std::string checkpoint_text(const std::vector<FolderMoment>& moments) {
  TextTable table;
  table.row({"moment", "", "killed now, a run resumes from"});
  for (const FolderMoment& moment : moments) {
    table.row({moment.title, moment.what + " " + moment.after, moment.newest_complete});
  }
  return table.text();
}

}  // namespace

void add_explain_checkpoint(CLI::App& explain, int& exit_code) {
  auto* command = explain.add_subcommand("checkpoint",
                                         "How a checkpoint is committed: staged, synced, renamed");
  auto svg = std::make_shared<std::string>();
  add_svg_flag(*command, *svg);
  command->footer(
      "Saves checkpoints of a tiny model into a temporary folder and watches them.\n\n"
      "Example:\n  lockstep explain checkpoint --svg checkpoint.svg");
  command->callback([svg, &exit_code] {
    exit_code = 0;
    const std::vector<FolderMoment> moments = CheckpointStory().tell();
    if (!svg->empty()) return write_picture(*svg, draw_checkpoint(moments));
    fmt::print("{}", checkpoint_text(moments));
  });
}

}  // namespace lockstep::cli
