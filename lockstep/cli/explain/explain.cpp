// lockstep explain: collectives and their algorithms, and topics of training (topics.h), for people
// who want to understand them.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text/text.h"
#include "lockstep/base/text/units.h"
#include "lockstep/cli/command.h"
#include "lockstep/cli/explain/cost.h"
#include "lockstep/cli/explain/cost_picture.h"
#include "lockstep/cli/explain/rounds.h"
#include "lockstep/cli/explain/schedule_picture.h"
#include "lockstep/cli/explain/topics.h"
#include "lockstep/cli/number_lists.h"
#include "lockstep/cli/text_table.h"

namespace lockstep::cli {
namespace {

using schedule::Algorithm;
using schedule::Shape;

constexpr int kDefaultExplainRanks[] = {4};
constexpr int kDefaultCostRanks[] = {4, 8, 12, 64};
constexpr int kMostPricedRanks = 65536;  // with --cost alone; an algorithm is shown to fewer
constexpr std::string_view kDefaultSize = "1MiB";
constexpr std::string_view kDefaultCostSizes = "1Ki,32Ki,1Mi,32Mi,1Gi";

struct Options {
  std::string collective;
  std::string algorithm;
  std::string ranks;
  std::string size;
  std::string grid;
  std::string machines;
  std::string cost;
  std::string svg;
  std::string view;
  int root = 0;
  std::optional<int> segments;
  std::vector<std::string> of_shape;  // flags that say more about --algorithm or --cost
};

Collective parse_collective(std::string_view text) {
  std::vector<std::string_view> names;
  for (Collective collective : kScheduledCollectives) {
    if (name(collective) == text) return collective;
    names.push_back(name(collective));
  }
  fail(ErrorCode::kInvalidArgument, "unknown collective '{}'{}; expected one of {}", text,
       did_you_mean(text, names), fmt::join(names, ", "));
}

// One shape for each number of ranks that was asked for. Grid and nodes imply a number.
std::vector<Shape> shapes_of(const Options& options) {
  const bool only_prices = !options.cost.empty() && options.algorithm.empty();
  const int most = only_prices ? kMostPricedRanks : kMostRanks;
  Shape shape;
  shape.root = options.root;
  shape.segments = options.segments.value_or(0);
  if (!options.grid.empty()) shape.grid = parse_numbers("--grid", options.grid, 'x', "4x2");
  if (!options.machines.empty()) {
    const std::vector<int> sizes = parse_numbers("--machines", options.machines, ',', "4,4");
    for (int machine = 0; machine < std::ssize(sizes); ++machine) {
      const int size = std::min(sizes[static_cast<std::size_t>(machine)], most + 1);
      shape.machines.insert(shape.machines.end(), static_cast<std::size_t>(size), machine);
    }
  }
  std::vector<int> ranks;
  if (!options.ranks.empty()) {
    ranks = parse_ranks(options.ranks, most);
  } else if (!shape.machines.empty()) {
    ranks = {static_cast<int>(shape.machines.size())};
  } else if (!shape.grid.empty()) {
    const long long product =
        std::accumulate(shape.grid.begin(), shape.grid.end(), 1LL, std::multiplies<>());
    ranks = {static_cast<int>(std::min<long long>(product, most + 1))};
  } else if (options.cost.empty() || !options.algorithm.empty()) {
    ranks.assign(std::begin(kDefaultExplainRanks), std::end(kDefaultExplainRanks));
  } else {
    ranks.assign(std::begin(kDefaultCostRanks), std::end(kDefaultCostRanks));
  }
  std::vector<Shape> shapes;
  for (int n : ranks) {
    if (n > most) {
      fail(ErrorCode::kInvalidArgument, "{} ranks are more than explain takes; up to {} are fine",
           n, most);
    }
    shape.ranks = n;
    check_shape(shape);
    shapes.push_back(shape);
  }
  return shapes;
}

void list_algorithms(Collective collective) {
  TextTable table;
  for (const Algorithm& algorithm : schedule::algorithms(collective)) {
    table.row({std::string(algorithm.name), std::string(algorithm.summary)});
  }
  fmt::print("{}\n{}", name(collective), table.text());
}

void list_everything() {
  for (Collective collective : kScheduledCollectives) {
    list_algorithms(collective);
    fmt::print("\n");
  }
  fmt::print(
      "lockstep explain all_reduce --algorithm ring shows one round by round; lockstep explain "
      "--help\nlists topics besides collectives: a block, memory, buckets, ZeRO, pipelines and "
      "more.\n");
}

// Here every shape comes from flags: one that the algorithm cannot serve is a wrong flag.
schedule::Schedule make_asked(const Algorithm& algorithm, const Shape& shape) {
  try {
    return schedule::make_schedule(algorithm, shape);
  } catch (const Error& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

// The one size that an algorithm is shown for.
double shown_size(const Options& options) {
  const auto sizes = parse_byte_range(
      options.size.empty() ? kDefaultSize : std::string_view(options.size), kSizeFactor);
  if (sizes.size() > 1 && options.cost.empty()) {
    fail(ErrorCode::kInvalidArgument, "--algorithm explains one --size; lists are for --cost");
  }
  return static_cast<double>(sizes[0]);
}

// Whatever says which ranks share a node has to say it once, and inner links need such ranks.
schedule::Network asked_network(const Options& options) {
  const schedule::Network network = schedule::parse_network(options.cost);
  if (!options.machines.empty() && network.ranks_per_machine > 1) {
    fail(ErrorCode::kInvalidArgument,
         "--machines {} and ranks_per_machine={} both say which ranks share a node; give one of "
         "them",
         options.machines, network.ranks_per_machine);
  }
  if (options.machines.empty() && network.ranks_per_machine == 1 &&
      network.inner != network.outer) {
    fail(ErrorCode::kInvalidArgument,
         "'{}' has a link inside nodes, but every rank is on its own node; add ranks_per_machine=8 "
         "to it, or --machines 4,4",
         options.cost);
  }
  return network;
}

void explain_algorithm(const Options& options, std::string_view name, Collective collective,
                       const Shape& shape) {
  const Algorithm& algorithm = schedule::find_algorithm(collective, name);
  const schedule::Schedule made = make_asked(algorithm, shape);
  const std::string rounds = explain_rounds(algorithm, made, shown_size(options));
  if (options.svg.empty()) {
    fmt::print("{}", rounds);
    return;
  }
  const ScheduleView view =
      options.view.empty() ? usual_view(made) : schedule_view_from_name(options.view);
  write_picture(options.svg, draw_schedule(made, view));
}

void explain(const Options& options) {
  if (options.collective.empty()) {
    if (!options.algorithm.empty() || !options.cost.empty() || !options.svg.empty() ||
        !options.of_shape.empty()) {
      fail(ErrorCode::kInvalidArgument, "name a collective, like lockstep explain all_reduce");
    }
    return list_everything();
  }
  const Collective collective = parse_collective(options.collective);
  if (options.algorithm.empty() && options.cost.empty() && !options.svg.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "--svg draws one algorithm, or the costs of all; choose by --algorithm or --cost");
  }
  if (!options.algorithm.empty() && !options.cost.empty() && !options.svg.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "--svg draws one picture; give either --algorithm or --cost with it");
  }
  if (options.svg.empty() && !options.view.empty()) {
    fail(ErrorCode::kInvalidArgument, "--view says how --svg draws; give --svg FILE, too");
  }
  if (options.algorithm.empty() && options.cost.empty()) {
    if (options.of_shape.empty()) return list_algorithms(collective);
    fail(ErrorCode::kInvalidArgument, "{} needs --algorithm, to show one, or --cost, to price all",
         options.of_shape.front());
  }

  const std::vector<Shape> shapes = shapes_of(options);
  const auto network = options.cost.empty() ? schedule::Network() : asked_network(options);
  if (!options.algorithm.empty()) {
    if (shapes.size() > 1) {
      fail(ErrorCode::kInvalidArgument,
           "--algorithm explains one number of ranks; lists are for --cost alone");
    }
    const std::vector<std::string_view> names = split_text(options.algorithm, ',');
    if (names.size() > 1 && !options.svg.empty()) {
      fail(ErrorCode::kInvalidArgument, "--svg draws one algorithm, not {}", options.algorithm);
    }
    for (const std::string_view each : names) {
      explain_algorithm(options, trim(each), collective, shapes[0]);
      if (each.data() != names.back().data() || !options.cost.empty()) fmt::print("\n");
    }
  }
  if (!options.cost.empty()) {
    const std::vector<std::size_t> sizes = parse_byte_range(
        options.size.empty() ? kDefaultCostSizes : std::string_view(options.size), kSizeFactor);
    if (!options.svg.empty()) {
      return write_picture(options.svg, draw_costs(collective, shapes, sizes, network));
    }
    fmt::print("{}", explain_cost(collective, shapes, sizes, network));
  }
}

std::string explain_footer() {
  TextTable links;
  for (const schedule::NamedLink& named : schedule::named_links()) {
    links.row({std::string(named.name), std::string(named.what),
               fmt::format("alpha {}", format_seconds(named.link.alpha))});
  }
  return "Examples:\n"
         "  lockstep explain                                     all collectives and algorithms\n"
         "  lockstep explain all_reduce --algorithm ring         one of them, round by round\n"
         "  lockstep explain all_reduce --algorithm ring,tree    one after the other\n"
         "  lockstep explain all_reduce --algorithm torus_2d --grid 2x4 --svg torus.svg\n"
         "  lockstep explain all_reduce --algorithm hierarchical --machines 3,5\n"
         "  lockstep explain memory --layers 4 --svg memory.svg  a topic besides collectives\n"
         "  lockstep explain all_reduce --cost 'alpha=5us,bandwidth=100Gbit'\n"
         "  lockstep explain all_reduce --ranks 32 --cost 'inner=nvlink,outer=rdma,"
         "ranks_per_machine=8' --svg costs.svg\n"
         "  lockstep explain all_reduce --ranks 16384 --cost 'inner=nvlink,outer=rdma,"
         "ranks_per_machine=8,nics_per_machine=8'\n\n"
         "--cost takes alpha, bandwidth (between nodes), inner_alpha, inner_bandwidth,\n"
         "ranks_per_machine, machines_per_leaf, oversubscription, spine_alpha, gamma (how fast\n"
         "bytes are combined, like 20GB), nics_per_machine, ranks_per_root and root_bandwidth (of "
         "a\n"
         "PCIe root that ranks share on the way to NICs; inner_over_roots=1: also inside "
         "nodes),\n"
         "torus (extents of nodes that are joined to their neighbours, like 8x8), hop_alpha, "
         "and\n"
         "links by name for inner and outer:\n" +
         links.text();
}

CLI::Validator not_empty() {
  return CLI::Validator(
      [](const std::string& text) { return std::string(text.empty() ? "the value is empty" : ""); },
      "", "");
}

}  // namespace

void add_explain(CLI::App& app, int& exit_code) {
  auto* command = app.add_subcommand(
      "explain", "Show how collectives and training work, as text or as pictures");
  auto options = std::make_shared<Options>();
  const auto add = [&](const char* name, std::string& value, const char* what) {
    return command->add_option(name, value, what)->check(not_empty());
  };
  add("collective", options->collective, "all_reduce, broadcast, ...");
  add("-a,--algorithm", options->algorithm,
      "The algorithm to show, or a list, like ring,tree; without it, all are listed");
  add("--cost", options->cost,
      "Price all algorithms on a network, like 'alpha=5us,bandwidth=100Gbit'");
  add("--svg", options->svg,
      "Draw --algorithm, or the curves of --cost, into this file instead of printing it");
  add("--view", options->view, "How --svg draws: rounds, ring or tree (default: what fits best)");
  const std::vector<const CLI::Option*> of_shape{
      add("-n,--ranks", options->ranks,
          "Number of ranks (default 4); with --cost also several, like 4,8,64"),
      add("--size", options->size,
          "Bytes of the vector (default 1MiB); with --cost several, like 1Ki..1Gi"),
      add("--grid", options->grid, "Extents of a torus or mesh, like 4x2"),
      add("--machines", options->machines, "Ranks on each node, like 4,4"),
      command->add_option("--root", options->root, "Root of broadcast, reduce, gather and scatter"),
      command
          ->add_option("--segments", options->segments,
                       "Segments that chain and double_binary_tree pipeline")
          ->check(CLI::Range(1, 4096))};
  command->footer(explain_footer());
  add_explain_block(*command, exit_code);
  add_explain_memory(*command, exit_code);
  add_explain_buckets(*command, exit_code);
  add_explain_zero(*command, exit_code);
  add_explain_gathers(*command, exit_code);
  add_explain_symmetric(*command, exit_code);
  add_explain_server(*command, exit_code);
  add_explain_checkpoint(*command, exit_code);
  add_explain_mesh(*command, exit_code);
  add_explain_pipeline(*command, exit_code);
  command->callback([command, options, of_shape, &exit_code] {
    if (!command->get_subcommands().empty()) return;  // a topic has done its work
    for (const CLI::Option* option : of_shape) {
      if (option->count() > 0) options->of_shape.push_back(option->get_name());
    }
    explain(*options);
    exit_code = 0;
  });
}

}  // namespace lockstep::cli
