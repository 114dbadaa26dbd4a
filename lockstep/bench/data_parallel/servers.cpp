#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lockstep/base/net/link_emulation.h"
#include "lockstep/base/text/text.h"
#include "lockstep/bench/data_parallel/cases.h"

namespace lockstep::bench::data_parallel {
namespace {

// The bar of the second server applies to the default schedule. The table also shows its gain with
// the other schedules, and on a link of half the bandwidth, where a step waits for the servers'
// NICs.
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

// How long the busiest NIC takes for what it sends, or receives, in a step. In bf16 as many bytes
// are pulled as are pushed, and a server has its part of every worker's.
double nic_seconds(double bytes_sent, int servers, const LinkEmulation& link) {
  return bytes_sent / 2 / std::min(servers, kServedWorkers) / link.bytes_per_second;
}

}  // namespace

// Without clipping: with it no server may update before all gradients have arrived, in any order.
CaseReport run_servers(Session& session) {
  CaseReport report{.name = "servers", .columns = timed_columns()};
  report.columns.push_back({"nic_s", "busiest NIC", Unit::kSeconds});
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
                "parallel.consistency=bsp", "parallel.server_placement=colocated",
                "optimizer.max_grad_norm=0", fmt::format("parallel.servers={}", servers),
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
        row.numbers.emplace_back("nic_s",
                                 nic_seconds(*bytes, servers, parse_link_emulation(network)));
      }
      report.rows.push_back(std::move(row));
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
  bar(server_setting(2, "priority"), server_setting(1, "priority"), 1.6);
  return report;
}

}  // namespace lockstep::bench::data_parallel
