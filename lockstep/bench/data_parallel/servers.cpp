#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/link_emulation.h"
#include "lockstep/base/text.h"
#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

// With wfbp forward waits for all that one server, or two, send back: the bar of the second is
// there. With priority both hide most of it behind compute. The gain of the second is shown all the
// same, on a link of half the rate, too, on which the servers' cards are what a step waits for.
constexpr double kSlower = 2;
constexpr int kServedWorkers = 2;

std::string server_setting(int servers, std::string_view schedule, bool slower = false) {
  return fmt::format("{}, {}{}", counted(static_cast<std::size_t>(servers), "server"), schedule,
                     slower ? ", half the rate" : "");
}

std::string slower_link(const Link& link) {
  LinkEmulation slower = parse_link_emulation(link.emulate);
  slower.bytes_per_second /= kSlower;
  return to_text(slower);
}

// How long the busiest card takes for what it sends, or receives, in a step. In bf16 as many bytes
// are pulled as are pushed, and a server has its part of every worker's.
double card_seconds(double bytes_sent, int servers, const LinkEmulation& link) {
  return bytes_sent / 2 / std::min(servers, kServedWorkers) / link.bytes_per_second;
}

// What the second server could win: no step is shorter than its compute, nor than the busiest card.
std::string most_to_win(const CaseReport& report, const std::string& two, const std::string& one) {
  const auto least = [&](const std::string& setting) -> std::optional<double> {
    const auto compute = report.number(setting, "compute_s");
    const auto card = report.number(setting, "card_s");
    if (!compute || !card) return std::nullopt;
    return std::max(*compute, *card);
  };
  const auto fast = least(two);
  const auto slow = least(one);
  if (!fast || !slow) return "";
  return fmt::format("the least a step may take, by compute and cards: {} / {}: {:.3f} at best\n",
                     one, two, *slow / *fast);
}

}  // namespace

// Without clipping: with it nobody may update before all gradients have come, whatever the order.
CaseReport run_servers(Session& session) {
  CaseReport report{.name = "servers", .columns = timed_columns()};
  report.columns.push_back({"card_s", "busiest card", Unit::kSeconds});
  const Link& link = session.link();
  if (!link.problem.empty()) {
    report.what = "not run";
    report.rows.push_back({.setting = "the link", .problem = link.problem});
  } else {
    report.what =
        fmt::format("2 workers and parameter servers on links of {} ({})", link.emulate, link.how);
    std::vector<Turn> turns;
    std::vector<std::pair<int, std::string>> networks;  // servers and link, by turn
    const auto add = [&](int servers, const char* schedule, bool slower = false) {
      networks.emplace_back(servers, slower ? slower_link(link) : link.emulate);
      turns.push_back(session.turn(
          report.name, server_setting(servers, schedule, slower),
          {Session::with(
               session.linked_model(),
               {"comm.emulate=" + networks.back().second, "parallel.strategy=parameter_server",
                "parallel.consistency=bsp", "parallel.server_place=beside", "optimizer.clip=0",
                fmt::format("parallel.servers={}", servers),
                fmt::format("parallel.schedule={}", schedule)}),
           kServedWorkers}));
    };
    for (const int servers : {2, 1}) {
      for (const char* schedule : {"fifo", "wfbp", "priority"}) add(servers, schedule);
    }
    for (const int servers : {2, 1}) add(servers, "priority", true);
    session.by_turns(turns);
    for (std::size_t i = 0; i < turns.size(); ++i) {
      Row row = row_of(turns[i]);
      const auto& [servers, network] = networks[i];
      if (const auto bytes = row.number("bytes_sent")) {
        row.numbers.emplace_back("card_s",
                                 card_seconds(*bytes, servers, parse_link_emulation(network)));
      }
      report.rows.push_back(std::move(row));
    }
    for (const bool slower : {false, true}) {
      report.drawing += most_to_win(report, server_setting(2, "priority", slower),
                                    server_setting(1, "priority", slower));
    }
  }
  const auto bar = [&](const std::string& fast, const std::string& slow, double bound) {
    report.bars.push_back({.claim = fmt::format("steps/s of {} / {}", fast, slow),
                           .side = Bar::Side::kAtLeast,
                           .bound = bound,
                           .value = report.ratio(fast, slow, "tokens_per_s"),
                           .why_not = "a run failed"});
  };
  bar(server_setting(2, "priority"), server_setting(2, "fifo"), 1.25);
  bar(server_setting(2, "wfbp"), server_setting(1, "wfbp"), 1.6);
  return report;
}

}  // namespace lockstep::bench::data_parallel
