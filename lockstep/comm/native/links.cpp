#include "lockstep/comm/native/links.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "lockstep/base/file/file.h"
#include "lockstep/base/log.h"
#include "lockstep/base/system/clock.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kPings = 30;
constexpr std::size_t kFirstStream = std::size_t{64} * 1024;
constexpr std::size_t kLastStream = std::size_t{8} * 1024 * 1024;
constexpr double kEnough = 5e-3;  // seconds of streaming that give a steady figure
constexpr double kSlow = 50e-3;   // a link this slow is not asked for more

// Both ends call this; `first` measures and gets the figures.
schedule::Link time_pair(Communicator& world, int first, int second) {
  const bool measures = world.rank() == first;
  const int peer = measures ? second : first;
  std::vector<std::byte> buffer(kLastStream);
  const auto data = [&](std::size_t bytes) { return Data(buffer.data(), bytes, DType::kU8); };
  const auto there_and_back = [&](std::size_t there, std::size_t back) {
    const auto start = SteadyClock::now();
    if (measures) {
      world.send(data(there), peer);
      world.receive(data(back), peer);
    } else {
      world.receive(data(there), peer);
      world.send(data(back), peer);
    }
    return seconds_since(start);
  };
  // Other work on the machine only adds to a time, and the figure stays in the cache. So the
  // shorter round trips count.
  std::vector<double> trips;
  for (int i = 0; i < kPings; ++i) trips.push_back(there_and_back(8, 8));
  std::nth_element(trips.begin(), trips.begin() + kPings / 4, trips.end());
  schedule::Link link{trips[kPings / 4] / 2, 1};
  const auto better_of_two = [&](std::size_t there, std::size_t back) {
    const double once = there_and_back(there, back);
    return std::min(once, there_and_back(there, back));
  };
  for (std::size_t bytes = kFirstStream; bytes <= kLastStream; bytes *= 4) {
    // A link may be slower one way than the other.
    const double seconds = std::max(better_of_two(bytes, 1), better_of_two(1, bytes));
    const double transfer = std::max(seconds - 2 * link.alpha, 1e-9);
    link.bandwidth = static_cast<double>(bytes) / transfer;
    // The measuring side decides for both whether a longer stream is worth its time.
    std::vector<std::uint8_t> again = {static_cast<std::uint8_t>(
        seconds < kEnough || (bytes < kLastStream / 4 && seconds < kSlow) ? 1 : 0)};
    if (measures) {
      world.send(again, peer);
    } else {
      world.receive(again, peer);
    }
    if (again[0] == 0) break;
  }
  return link;
}

// Seconds to combine a byte that has just arrived with one that lies in memory.
double time_combining() {
  constexpr std::size_t kCount = 1 << 18;
  const std::vector<float> arrived(kCount, 1.0f);
  std::vector<float> kept(kCount, 1.0f);
  const std::byte* const inputs[] = {reinterpret_cast<const std::byte*>(kept.data()),
                                     reinterpret_cast<const std::byte*>(arrived.data())};
  std::byte* const output = reinterpret_cast<std::byte*>(kept.data());
  double best = 1;
  for (int i = 0; i < 5; ++i) {
    const auto start = SteadyClock::now();
    combine(inputs, {&output, 1}, kCount, DType::kF32, ReduceOp::kSum);
    best = std::min(best, seconds_since(start));
  }
  return best / (kCount * sizeof(float));
}

// Who times messages with whom: two ranks of one node, and rank 0 with the first rank of every
// other node.
struct Pairs {
  std::vector<std::pair<int, int>> inner;
  std::vector<std::pair<int, int>> outer;
};

Pairs find_pairs(const std::vector<int>& machines, bool all_tcp) {
  Pairs pairs;
  std::vector<int> seen = {machines[0]};
  for (int r = 1; r < static_cast<int>(machines.size()); ++r) {
    const int machine = machines[static_cast<std::size_t>(r)];
    if (std::find(seen.begin(), seen.end(), machine) == seen.end()) {
      seen.push_back(machine);
      pairs.outer.emplace_back(0, r);
    } else if (pairs.inner.empty()) {
      const auto mate = std::find(machines.begin(), machines.end(), machine) - machines.begin();
      pairs.inner.emplace_back(static_cast<int>(mate), r);
    }
  }
  if (all_tcp && pairs.outer.empty()) std::swap(pairs.inner, pairs.outer);
  return pairs;
}

// One pair at a time; the slowest counts. All ranks return the same.
schedule::Link time_slowest(Communicator& world, const std::vector<std::pair<int, int>>& pairs) {
  std::array<double, 2> worst = {0, 1e18};
  for (const auto& [first, second] : pairs) {
    world.barrier();
    if (world.rank() != first && world.rank() != second) continue;
    const schedule::Link timed = time_pair(world, first, second);
    worst = {std::max(worst[0], timed.alpha), std::min(worst[1], timed.bandwidth)};
  }
  std::vector<double> known = {worst[0], worst[1]};
  world.broadcast(known, pairs.front().first);
  return {known[0], known[1]};
}

Links measure(Communicator& world, const Pairs& pairs) {
  Links links = assumed_links();
  links.gamma = time_combining();
  if (!pairs.inner.empty()) links.inner = time_slowest(world, pairs.inner);
  if (!pairs.outer.empty()) links.outer = time_slowest(world, pairs.outer);
  return links;
}

fs::path cache_file(const CommOptions& options) {
  return fs::path(options.cache_dir) / "links.json";
}

nlohmann::json read_cache(const fs::path& path) {
  std::ifstream file(path);
  nlohmann::json cache = nlohmann::json::parse(file, nullptr, false);
  return cache.is_object() ? cache : nlohmann::json::object();
}

std::optional<double> positive(const nlohmann::json& figure) {
  if (!figure.is_number() || !(figure.get<double>() > 0)) return std::nullopt;
  return figure.get<double>();
}

// Puts the figures of entry[name] into the link; false: they are not there, or not usable.
bool read_link(const nlohmann::json& entry, const char* name, schedule::Link& link) {
  const auto found = entry.find(name);
  if (found == entry.end() || !found->is_array() || found->size() != 2) return false;
  const auto alpha = positive((*found)[0]);
  const auto bandwidth = positive((*found)[1]);
  if (!alpha || !bandwidth) return false;
  link = {*alpha, *bandwidth};
  return true;
}

// What is remembered of the network; nothing unless all that these pairs would measure is there.
std::optional<Links> recall(const std::string& network, const Pairs& pairs,
                            const CommOptions& options) {
  if (options.cache_dir.empty()) return std::nullopt;
  const nlohmann::json cache = read_cache(cache_file(options));
  const auto entry = cache.find(network);
  if (entry == cache.end() || !entry->is_object()) return std::nullopt;
  Links links = assumed_links();
  if (!pairs.inner.empty() && !read_link(*entry, "inner", links.inner)) return std::nullopt;
  if (!pairs.outer.empty() && !read_link(*entry, "outer", links.outer)) return std::nullopt;
  const auto gamma = positive(entry->value("gamma", nlohmann::json()));
  if (!gamma) return std::nullopt;
  links.gamma = *gamma;
  return links;
}

// Remembers what these pairs have measured, and nothing that was assumed.
void remember(const std::string& network, const Pairs& pairs, const Links& links,
              const CommOptions& options) {
  if (options.cache_dir.empty()) return;
  try {
    const fs::path path = cache_file(options);
    fs::create_directories(path.parent_path());
    nlohmann::json cache = read_cache(path);
    nlohmann::json& entry = cache[network];
    if (!entry.is_object()) entry = nlohmann::json::object();
    const auto write_link = [&](const char* name, const schedule::Link& link) {
      entry[name] = {link.alpha, link.bandwidth};
    };
    if (!pairs.inner.empty()) write_link("inner", links.inner);
    if (!pairs.outer.empty()) write_link("outer", links.outer);
    entry["gamma"] = links.gamma;
    write_file(path, fmt::format("{}\n", cache.dump(2)));
  } catch (const std::exception& error) {
    log_warn("the measured links could not be saved: {}", error.what());
  }
}

}  // namespace

Links assumed_links() {
  return {.inner = {1e-6, 5e9}, .outer = {20e-6, 1.25e9}, .gamma = 1e-10, .source = "assumed"};
}

Links emulated_links(const LinkEmulation& link, bool has_hosts) {
  Links links = assumed_links();
  // Without a delay there is still what a message costs by itself.
  const double delay = std::chrono::duration<double>(link.delay).count();
  links.outer = {std::max(delay, links.inner.alpha), link.bytes_per_second};
  if (!has_hosts) links.inner = links.outer;
  links.source = "emulated";
  return links;
}

void check_emulation(const CommOptions& options) {
  const bool has_link = options.emulated_link().has_value();
  if (!has_link && options.emulated_nodes == 1) return;
  const std::string what = has_link
                               ? fmt::format("comm.emulate = \"{}\"", options.emulate)
                               : fmt::format("comm.emulated_nodes = {}", options.emulated_nodes);
  const auto refuse = [&](std::string_view key, std::string_view value, std::string_view instead) {
    fail(ErrorCode::kUnsupported,
         "{} is not supported with {} = \"{}\": emulated links exist only in lockstep's "
         "shared-memory transport; {}, or leave it out",
         what, key, value, instead);
  };
  if (options.backend == Backend::kMpi) {
    refuse("comm.backend", name(options.backend), "use comm.backend = \"native\"");
  }
  if (options.transport == TransportChoice::kTcp) {
    refuse("comm.transport", name(options.transport), "leave comm.transport \"auto\"");
  }
}

Links find_links(Communicator& world, const std::vector<int>& machines, bool all_tcp,
                 const std::string& network, const CommOptions& options) {
  if (!options.measure || world.size() == 1) return assumed_links();
  const Pairs pairs = find_pairs(machines, all_tcp);
  // Ranks of one node that are joined by TCP measure something else under the same names.
  const std::string key = all_tcp ? network + " tcp" : network;
  const std::optional<Links> recalled =
      world.rank() == 0 ? recall(key, pairs, options) : std::nullopt;
  std::vector<std::int32_t> known = {recalled ? 1 : 0};
  world.broadcast(known, 0);
  Links links = recalled.value_or(assumed_links());
  if (known[0] == 0) {
    links = measure(world, pairs);
    if (world.rank() == 0) remember(key, pairs, links, options);
  }
  std::vector<double> figures = {links.inner.alpha, links.inner.bandwidth, links.outer.alpha,
                                 links.outer.bandwidth, links.gamma};
  world.broadcast(figures, 0);
  return {.inner = {figures[0], figures[1]},
          .outer = {figures[2], figures[3]},
          .gamma = figures[4],
          .source = known[0] != 0 ? "remembered" : "measured"};
}

}  // namespace lockstep
