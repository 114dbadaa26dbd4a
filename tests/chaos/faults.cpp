#include "tests/chaos/faults.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "tests/launch/launched.h"

namespace lockstep::chaos {
namespace {
namespace fs = std::filesystem;
using std::chrono::milliseconds;
using testing::eventually;
using testing::read_text;

// A random time, not a wait for anything.
milliseconds pause(Random& random, int least, int most) {
  const milliseconds time(least + static_cast<int>(random() % static_cast<unsigned>(most - least)));
  std::this_thread::sleep_for(time);
  return time;
}

// Of ranks that are there; one that just died under another fault is not.
void signal_rank(const Job& job, int rank, int signal) {
  for (const pid_t pid : job.rank(rank)) ::kill(pid, signal);
}

std::string signal_ranks(const Job& job, Random& random, int count, int signal) {
  std::vector<int> ranks(Job::kRanks);
  for (int i = 0; i < Job::kRanks; ++i) ranks[static_cast<std::size_t>(i)] = i;
  std::ranges::shuffle(ranks, random);
  ranks.resize(static_cast<std::size_t>(count));
  for (const int rank : ranks) signal_rank(job, rank, signal);
  return fmt::format("rank{} {}", count == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// A job needs a rank on node 0, which an elastic one may not start again.
std::string kill_first_node_ranks(const Job& job) {
  for (int rank = 0; rank < Job::kRanks / job.kind().nodes; ++rank) signal_rank(job, rank, SIGKILL);
  return "";
}

// Not all of node 0 in an elastic job: that has a fault of its own.
std::string kill_two_ranks(Job& job, Random& random) {
  if (!job.kind().is_elastic || job.kind().nodes == 1) {
    return signal_ranks(job, random, 2, SIGKILL);
  }
  constexpr int kHalf = Job::kRanks / 2;
  const int last = kHalf + static_cast<int>(random() % kHalf);
  const int other = static_cast<int>(random() % static_cast<unsigned>(last));
  signal_rank(job, other, SIGKILL);
  signal_rank(job, last, SIGKILL);
  return fmt::format("ranks {}, {}", other, last);
}

std::string pause_rank(Job& job, Random& random) {
  const int rank = static_cast<int>(random() % Job::kRanks);
  const std::vector<pid_t> found = job.rank(rank);
  for (const pid_t pid : found) ::kill(pid, SIGSTOP);
  const milliseconds time = pause(random, 100, 2000);
  for (const pid_t pid : found) ::kill(pid, SIGCONT);
  return fmt::format("rank {} for {} ms", rank, time.count());
}

// All launchers at once; their ranks end with them.
std::string kill_launchers(Job& job) {
  for (int node = 0; node < job.kind().nodes; ++node) job.kill_node(node);
  eventually([&] { return job.processes().empty(); }, std::chrono::seconds(20));
  return "";
}

std::string lose_node(Job& job, Random& random) {
  const int node = static_cast<int>(random() % 2);
  job.kill_node(node);
  const milliseconds time = pause(random, 10, 1500);
  job.start_node(node);
  return fmt::format("node {} for {} ms", node, time.count());
}

std::string slow_link(Job& job, Random& random) {
  job.place().hosts->slow_down(2, "2mbit");
  const milliseconds time = pause(random, 500, 4000);
  job.place().hosts->speed_up(2);
  return fmt::format("to 2 Mbit/s for {} ms", time.count());
}

// In what one of its processes next receives.
std::string change_bit(Job& job) {
  const fs::path trigger = job.trigger("flip");
  std::ofstream(trigger).flush();
  const bool came =
      eventually([&] { return !fs::exists(trigger) || job.has_ended(); }, std::chrono::seconds(20));
  const bool is_done = came && !fs::exists(trigger);
  fs::remove(trigger);
  return is_done ? "" : "nothing more was received";
}

std::string step_clock(Job& job, Random& random) {
  const bool back = random() % 2 == 0;
  const auto hours = 1 + random() % 48;
  std::ofstream(job.trigger("clock")) << (back ? "-" : "") << hours * 3600 << std::flush;
  return fmt::format("{} hours {}", hours, back ? "back" : "ahead");
}

std::string resize(Job& job, Random& random) {
  const int ranks = 1 + static_cast<int>(random() % (Job::kRanks - 1));
  job.resize(ranks);
  const milliseconds time = pause(random, 10, 1500);
  job.resize(Job::kRanks);
  return fmt::format("{} ranks for {} ms", ranks, time.count());
}

std::string pull_cable(Job& job, Random& random) {
  job.place().hosts->plug(2, false);
  const milliseconds time = pause(random, 50, 6000);
  job.place().hosts->plug(2, true);
  return fmt::format("for {} ms", time.count());
}

fs::path ballast(const Job& job) { return job.place().small_disk / "ballast"; }

std::string fill_disk(Job& job) {
  std::ofstream file(ballast(job), std::ios::binary);
  const std::string block(1 << 16, 'x');
  while (file.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
  }
  return "";
}

// The newest of several checkpoints, of a job that has been killed; empty: there is at most one. A
// run does not start from scratch where its only one is damaged.
fs::path newest_checkpoint(const Job& job) {
  std::set<fs::path> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(job.folder() / "checkpoints", error)) {
    if (fs::exists(entry.path() / "manifest.json")) all.insert(entry.path());
  }
  return all.size() < 2 ? fs::path() : *all.rbegin();
}

// As by a disk that lost what was written last, or changed it.
std::string damage_checkpoint(Job& job, Random& random) {
  kill_launchers(job);
  const fs::path checkpoint = newest_checkpoint(job);
  if (checkpoint.empty()) return "there were less than two";
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  }
  std::ranges::sort(files);
  if (files.empty()) return "there were no states";
  const fs::path file = files[random() % files.size()];
  const std::uintmax_t size = fs::file_size(file);
  const std::uintmax_t at = random() % size;
  if (random() % 2 == 0) {
    fs::resize_file(file, at);
    return fmt::format("{} cut to {} of {} bytes", file.filename().string(), at, size);
  }
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(static_cast<std::streamoff>(at));
  const int byte = stream.get();
  stream.seekp(static_cast<std::streamoff>(at));
  stream.put(static_cast<char>(byte ^ (1 << (random() % 8))));
  return fmt::format("a bit of byte {} of {} changed", at, file.filename().string());
}

// Ports on which processes of the job listen, for connections from this network.
std::set<std::uint16_t> ports_of(const Job& job) {
  std::set<std::uint16_t> ports;
  for (const pid_t pid : job.processes()) {
    std::set<std::string> sockets;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), error)) {
      sockets.insert(fs::read_symlink(entry.path(), error).string());
    }
    std::istringstream lines(read_text(fmt::format("/proc/{}/net/tcp", pid)));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream fields(line);
      std::string number, local, remote, state, queues, timer, retries, user, timeout, inode;
      fields >> number >> local >> remote >> state >> queues >> timer >> retries >> user >>
          timeout >> inode;
      if (state != "0A" || !sockets.contains(fmt::format("socket:[{}]", inode))) continue;
      ports.insert(
          static_cast<std::uint16_t>(std::stoul(local.substr(local.find(':') + 1), nullptr, 16)));
    }
  }
  return ports;
}

// Some say nothing, some what nobody understands.
std::string send_strangers(Job& job, Random& random) {
  const std::set<std::uint16_t> ports = ports_of(job);
  for (const std::uint16_t port : ports) {
    for (int i = 0; i < 60; ++i) {
      UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      sockaddr_in address = {};
      address.sin_family = AF_INET;
      address.sin_port = htons(port);
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
      if (i % 2 == 0) {
        std::string noise(1 + random() % 200, '\0');
        for (char& c : noise) c = static_cast<char>(random());
        static_cast<void>(::send(socket.get(), noise.data(), noise.size(), MSG_NOSIGNAL));
      }
      job.strangers.push_back(std::move(socket));
    }
  }
  return fmt::format("{} at {} ports", job.strangers.size(), ports.size());
}

constexpr const char* kMemoryGroups = "/sys/fs/cgroup/memory";

// The kernel kills a rank whose group may have less memory than it has. Groups of version 1.
fs::path memory_group() { return fs::path(kMemoryGroups) / fmt::format("chaos{}", ::getpid()); }

bool can_limit_memory() {
  std::error_code error;
  if (!fs::create_directory(memory_group(), error)) return false;
  fs::remove(memory_group(), error);
  return true;
}

std::string exhaust_memory(Job& job, Random& random) {
  const int rank = static_cast<int>(random() % Job::kRanks);
  fs::create_directory(memory_group());
  std::ofstream(memory_group() / "memory.move_charge_at_immigrate") << 1;
  std::ofstream(memory_group() / "memory.limit_in_bytes") << "4M";
  for (const pid_t pid : job.rank(rank)) std::ofstream(memory_group() / "cgroup.procs") << pid;
  eventually([&] { return read_text(memory_group() / "cgroup.procs").empty(); });
  std::error_code error;
  fs::remove(memory_group(), error);
  return fmt::format("rank {}", rank);
}

bool any(const Kind&) { return true; }
bool one_node(const Kind& kind) { return kind.nodes == 1; }
bool of_nodes(const Kind& kind) { return kind.nodes > 1; }
bool of_hosts(const Kind& kind) { return kind.has_hosts; }
bool is_elastic(const Kind& kind) { return kind.is_elastic; }
bool of_elastic_nodes(const Kind& kind) { return kind.is_elastic && kind.nodes > 1; }
bool over_tcp(const Kind& kind) {
  return kind.nodes > 1 || kind.settings.find("transport=tcp") != std::string::npos;
}
bool has_ports_here(const Kind& kind) { return over_tcp(kind) && !kind.has_hosts; }
void nothing(Job&) {}

}  // namespace

std::vector<Fault> faults(const Place& place, std::vector<std::string>& missing) {
  std::vector<Fault> all = {
      {"a rank is killed", any,
       [](Job& job, Random& random) { return signal_ranks(job, random, 1, SIGKILL); }},
      {"two ranks are killed", any, kill_two_ranks},
      {"all ranks of node 0 are killed", of_elastic_nodes,
       [](Job& job, Random&) { return kill_first_node_ranks(job); }, nothing},
      {"a rank crashes", any,
       [](Job& job, Random& random) { return signal_ranks(job, random, 1, SIGSEGV); }},
      {"a rank hangs", any,
       [](Job& job, Random& random) { return signal_ranks(job, random, 1, SIGSTOP); }},
      {"a rank pauses", any, pause_rank},
      {"the launchers are killed", any, [](Job& job, Random&) { return kill_launchers(job); },
       nothing},
      {"the job is asked to stop", any,
       [](Job& job, Random& random) {
         const int node = static_cast<int>(random() % static_cast<unsigned>(job.kind().nodes));
         job.signal_node(node, SIGTERM);
         return fmt::format("node {}", node);
       },
       nothing},
      {"a node is lost and comes back", of_nodes, lose_node},
      {"the newest checkpoint is damaged", one_node, damage_checkpoint, nothing},
      {"the disk fails (EIO)", any,
       [](Job& job, Random&) {
         std::ofstream(job.trigger("eio")).flush();
         return std::string();
       },
       [](Job& job) { fs::remove(job.trigger("eio")); }},
      {"strangers connect", has_ports_here, send_strangers},
      {"a bit changes on the way", over_tcp, [](Job& job, Random&) { return change_bit(job); }},
      {"the clock steps", any, step_clock},
      {"the number of ranks changes", is_elastic, resize},
  };
  if (place.small_disk.empty()) {
    missing.emplace_back("a full disk: mounting a small file system needs root");
  } else {
    all.push_back({"the disk is full", any, [](Job& job, Random&) { return fill_disk(job); },
                   [](Job& job) { fs::remove(ballast(job)); }, true});
  }
  if (place.hosts == nullptr) {
    missing.emplace_back(
        "a pulled cable and a slow link: network namespaces need root, iproute2 and tc");
  } else {
    all.push_back({"a cable is pulled", of_hosts, pull_cable});
    all.push_back({"a link is slow", of_hosts, slow_link});
  }
  if (can_limit_memory()) {
    all.push_back({"a rank's memory group is full", any, exhaust_memory});
  } else {
    missing.push_back(fmt::format(
        "a rank that the kernel kills for its memory: no group can be made in {}", kMemoryGroups));
  }
  return all;
}

}  // namespace lockstep::chaos
