#include "lockstep/cli/explain/rounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/explain/words.h"
#include "lockstep/cli/text_table.h"
#include "lockstep/comm/schedule/formula.h"
#include "lockstep/comm/schedule/generators.h"
#include "lockstep/comm/schedule/verify.h"

namespace lockstep::cli {
namespace {

using schedule::Delivery;
using schedule::Schedule;
using schedule::SymbolicRun;

constexpr int kMostColumns = 12;

// What a rank has: a cell for each column, or where these are many, one cell that lists runs.
std::vector<std::string> holdings(const Schedule& schedule, const SymbolicRun& run, int rank) {
  const int count = shown_chunks(schedule);
  std::vector<std::string> cells;
  for (int column = 0; column < count; ++column) {
    const int chunk = shown_chunk(schedule, rank, column);
    cells.push_back(name_contributions(schedule, run.best(rank, chunk)));
  }
  if (count <= kMostColumns) return cells;
  std::string text;
  for (int first = 0; first < count;) {
    int end = first + 1;
    const std::string& held = cells[static_cast<std::size_t>(first)];
    while (end < count && cells[static_cast<std::size_t>(end)] == held) ++end;
    if (held != "-") {
      if (!text.empty()) text += "  ";
      text += first + 1 == end ? fmt::to_string(first) : fmt::format("{}-{}", first, end - 1);
      if (held != "yes") text += ":" + held;
    }
    first = end;
  }
  return {text.empty() ? "-" : text};
}

std::vector<std::string> heading(const Schedule& schedule) {
  const bool pairs = schedule.collective == Collective::kAllToAll;
  if (shown_chunks(schedule) > kMostColumns) return {pairs ? "has the chunks of ranks" : "has"};
  std::vector<std::string> cells;
  for (int column = 0; column < shown_chunks(schedule); ++column) {
    cells.push_back(pairs ? fmt::format("of {}", column) : name_chunk(schedule, column));
  }
  return cells;
}

std::string list(const std::vector<std::string>& items) {
  return items.empty() ? "." : fmt::format("{}", fmt::join(items, "; "));
}

// One line per rank: what it sends and receives in the round just run, and has now.
std::string round_table(const Schedule& schedule, const SymbolicRun& run) {
  TextTable table;
  std::vector<std::string> head{"rank", "sends", "receives"};
  std::ranges::move(heading(schedule), std::back_inserter(head));
  table.row(std::move(head));
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
    std::vector<std::string> sends;
    std::vector<std::string> receives;
    for (const Delivery& delivery : run.deliveries()) {
      const std::string what = name_chunks(schedule, delivery.cells);
      if (delivery.from == rank) sends.push_back(fmt::format("{} to {}", what, delivery.to));
      if (delivery.to == rank) {
        receives.push_back(fmt::format("{} from {}{}", what, delivery.from,
                                       delivery.combined ? ", combines" : ""));
      }
    }
    std::vector<std::string> cells{fmt::to_string(rank), list(sends), list(receives)};
    std::ranges::move(holdings(schedule, run, rank), std::back_inserter(cells));
    table.row(std::move(cells));
  }
  return table.text();
}

std::string start_table(const Schedule& schedule, const SymbolicRun& run) {
  TextTable table;
  std::vector<std::string> head{"rank"};
  std::ranges::move(heading(schedule), std::back_inserter(head));
  table.row(std::move(head));
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
    std::vector<std::string> cells{fmt::to_string(rank)};
    std::ranges::move(holdings(schedule, run, rank), std::back_inserter(cells));
    table.row(std::move(cells));
  }
  return table.text();
}

std::string legend(const Schedule& schedule) {
  const int ranks = schedule.shape.ranks;
  const int chunks = chunk_numbers(schedule);
  std::string text;
  if (schedule.collective == Collective::kAllToAll) {
    text = fmt::format(
        "S is what one rank gives, {} chunks; i>j is the chunk of rank i for rank j. ", ranks);
  } else if (chunks != schedule.chunks) {
    text = fmt::format("The vector S has {} blocks, one for each rank. ", ranks);
  } else if (chunks > 1) {
    text = fmt::format("The vector S is cut into {} chunks, 0 to {}. ", chunks, chunks - 1);
  } else {
    text = "The vector S is sent whole. ";
  }
  if (reduces(schedule.collective)) {
    return text +
           "A table shows whose\ncontributions a rank has combined: 0+3 those of ranks 0 and 3, "
           "4-7 of 4 to 7, - nothing.\n";
  }
  return text + "A table shows what a rank\nhas: yes, or - where it has nothing.\n";
}

std::string vectors(double count) { return fmt::format("{:.4g} S", count); }

std::string totals(const schedule::Algorithm& algorithm, const Schedule& schedule, double bytes) {
  const schedule::Traffic traffic = count_traffic(schedule);
  const schedule::Formula& formula = schedule::find_formula(algorithm.collective, algorithm.name);
  const auto in_bytes = [&](double count) { return format_bytes(count * bytes); };
  int messages = 0;
  double least = traffic.sent_by(0);
  for (int rank = 0; rank < schedule.shape.ranks; ++rank) {
    messages += traffic.ranks[static_cast<std::size_t>(rank)].messages_sent;
    least = std::min(least, traffic.sent_by(rank));
  }
  const double most = traffic.sent_by_busiest();
  TextTable table;
  table.row({"", "counted", fmt::format("S = {}", format_bytes(bytes)), "closed form"});
  table.row({"rounds", fmt::to_string(traffic.rounds), "",
             fmt::format("{} = {}", formula.rounds_text, formula.rounds(schedule.shape))});
  table.row({"messages", fmt::to_string(messages)});
  if (most - least < 1e-12) {
    table.row({"sent by each rank", vectors(most), in_bytes(most)});
  } else {
    table.row({"sent by a rank", fmt::format("{} to {}", vectors(least), vectors(most)),
               fmt::format("{} to {}", in_bytes(least), in_bytes(most))});
  }
  table.row({"sent in all", vectors(traffic.sent_in_all()), in_bytes(traffic.sent_in_all()),
             fmt::format("{} = {}", formula.sent_in_all_text,
                         vectors(formula.sent_in_all(schedule.shape)))});
  return fmt::format("{}\nIn closed forms: {}.\n", table.text(), schedule::kFormulaLetters);
}

// The part of the shape that the algorithm uses, given or by default.
std::string place_of_ranks(const schedule::Algorithm& algorithm, const schedule::Shape& shape) {
  if (has_root(algorithm.collective)) return fmt::format(", root {}", shape.root);
  if (algorithm.name == "server") return fmt::format(", server {}", shape.root);
  if (algorithm.name == "torus_2d" || algorithm.name == "mesh_2d") {
    return fmt::format(", a grid of {}", fmt::join(schedule::grid_of(shape, 2), "x"));
  }
  if (algorithm.name == "torus_3d") {
    return fmt::format(", a grid of {}", fmt::join(schedule::grid_of(shape, 3), "x"));
  }
  if (algorithm.name == "hierarchical") {
    const std::vector<int> leaders = schedule::machines_of(shape).leaders;
    return fmt::format(" on {} led by {}", counted(leaders.size(), "node"),
                       fmt::join(leaders, ", "));
  }
  return "";
}

}  // namespace

std::string explain_rounds(const schedule::Algorithm& algorithm, const Schedule& schedule,
                           double bytes) {
  std::string text = fmt::format("{} by {}, {}", name(algorithm.collective), algorithm.name,
                                 counted(static_cast<std::size_t>(schedule.shape.ranks), "rank"));
  text += place_of_ranks(algorithm, schedule.shape);
  text += fmt::format("\n\n{}\n{}\n", algorithm.summary, legend(schedule));

  SymbolicRun run(schedule, schedule::Placement::kOutOfPlace);
  text += "at the start\n" + start_table(schedule, run);
  for (int round = 0; round < run.rounds(); ++round) {
    run.run_round(round);
    text += fmt::format("\nround {}{}\n", round, run.deliveries().empty() ? ", local" : "");
    text += round_table(schedule, run);
  }
  run.check_result();
  if (algorithm.collective != Collective::kAllToAll) {
    verify(schedule, schedule::Placement::kInPlace);
  }
  return text + "\nThis is the right result on every rank (verified step by step).\n\n" +
         totals(algorithm, schedule, bytes);
}

}  // namespace lockstep::cli
