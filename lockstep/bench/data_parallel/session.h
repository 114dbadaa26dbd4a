// The shared state of a bench's cases: models, data, the link, and turns.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/file/scratch_folder.h"
#include "lockstep/bench/data_parallel/bench_data_parallel.h"
#include "lockstep/bench/data_parallel/report.h"
#include "lockstep/bench/data_parallel/training.h"
#include "lockstep/bench/interrupt.h"
#include "lockstep/bench/memory_watch.h"
#include "lockstep/train/options/run_options.h"

namespace lockstep::bench::data_parallel {

// The first steps of each run are not timed: they touch memory for the first time.
inline constexpr std::size_t kFirstSteps = 2;

// An emulated link on which reducing the gradients of two ranks takes as long as backward.
struct Link {
  std::string emulate;  // the value of comm.emulate
  std::string how;      // it was found, in words
  std::string problem;  // why there is none
};

// A setting that is timed: `once` is called at each of its turns.
struct Turn {
  std::string setting;
  std::function<Trained()> once;
  std::vector<TrainedStep> steps;  // of all turns, without the first ones of each
  std::string problem;             // of the turn that failed; there was none after it
  int turns = 0;                   // that went well
  bool ours = true;                // not a peer
  MemoryWatch::Peak memory;        // by Session::weigh()

  double median(const std::function<double(const TrainedStep&)>& of) const;
};
// Step, tokens/s and, of several ranks, where the time went: medians. The columns are those of
// timed_columns().
Row row_of(const Turn& turn);
std::vector<Column> timed_columns();

class Session {
 public:
  // Both outlive it.
  Session(const DataParallelBench& bench, const Interrupt& interrupt);

  const DataParallelBench& bench() const { return bench_; }
  const Interrupt& interrupt() const { return interrupt_; }

  // The language model whose steps are timed, on synthetic tokens, one thread per rank: steps of
  // `batch` sequences of `sequence` tokens, or the bench's own sizes. The last of equal settings
  // counts, and the bench's come after those of a case.
  std::vector<std::string> timed_model(int batch, int sequence);
  // The same for steps over an emulated link: few tokens, much to send. After link() there are
  // enough tokens that the update is a small part of a step.
  std::vector<std::string> linked_model() { return timed_model(2 * linked_growth_, 256); }
  // The small model on letters of `lockstep bench recipe`, or on synthetic tokens without a text.
  std::vector<std::string> recipe(int steps);
  int steps(int usual) const { return bench_.steps > 0 ? bench_.steps : usual; }
  // Of the recipe: all of it to compare losses on a text, else as few as will do.
  int recipe_steps(int without_text) const;
  bool has_text() const { return !bench_.text.empty(); }

  static train::RunOptions options_of(const std::vector<std::string>& settings);
  static std::vector<std::string> with(std::vector<std::string> settings,
                                       const std::vector<std::string>& more);

  // Runs `train` with a line on stderr before and after. A signal does not throw: it is the problem
  // of the current run and all later ones, so that a case can still report its results.
  Trained told(std::string_view name, std::string_view setting,
               const std::function<Trained()>& once);
  // One run, in a folder that `look` may read before it goes.
  using Look = std::function<void(const std::filesystem::path& folder)>;
  Trained run(std::string_view name, std::string_view setting, const Training& training,
              const Look& look = {});
  Turn turn(std::string_view name, std::string setting, Training training);
  void by_turns(std::span<Turn> turns);
  // One more run of each, to measure memory (bench/memory_watch.h); its times are not used.
  void weigh(std::span<Turn> turns);
  // What ended the bench, if something did.
  const std::optional<Error>& interrupted() const { return interrupted_; }

  // Found on first use.
  const Link& link();

 private:
  std::filesystem::path tokens(std::int64_t vocabulary);
  bool describes_a_model() const;
  // A step without an emulated link: its backward and update, medians, and what a rank sends.
  struct LinkedStep {
    double backward = 0;  // seconds
    double update = 0;
    double bytes = 0;
    std::string problem;
  };
  LinkedStep time_linked_step();
  std::size_t linked_sequences();
  Link find_link();

  const DataParallelBench& bench_;
  const Interrupt& interrupt_;
  ScratchFolder scratch_;
  std::optional<Link> link_;
  int linked_growth_ = 1;
  std::optional<Error> interrupted_;
};

}  // namespace lockstep::bench::data_parallel
