#include "lockstep/bench/collectives/implementation.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "lockstep/base/text/text.h"
#include "lockstep/bench/collectives/worker.h"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

using Environment = std::vector<std::pair<std::string, std::string>>;

Environment worker_environment(const Site& site, const std::string& job) {
  return {{kSocketVariable, site.socket},
          {kJobVariable, job},
          {kDirectoryVariable, site.directory.string()}};
}

bool is_program(const fs::path& path) { return ::access(path.c_str(), X_OK) == 0; }

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  if (path == nullptr) return false;
  for (const std::string_view folder : split_text(path, ':')) {
    if (is_program(fs::path(folder) / program)) return true;
  }
  return false;
}

JobSpec gloo_job(const Site& site, int ranks) {
  JobSpec job{"gloo", ranks, {}};
  for (int rank = 0; rank < ranks; ++rank) {
    Program program{{(site.peers / "gloo_worker").string()}, worker_environment(site, "gloo")};
    program.environment.emplace_back("RANK", std::to_string(rank));
    program.environment.emplace_back("WORLD_SIZE", std::to_string(ranks));
    job.programs.push_back(program);
  }
  return job;
}

// Open MPI takes a core, not a hardware thread, for a slot.
int physical_cores() {
  std::set<std::string> cores;  // by the hardware threads that share them
  for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
    std::ifstream file(
        fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
    std::string siblings;
    if (std::getline(file, siblings)) cores.insert(siblings);
  }
  return cores.empty() ? 1 : static_cast<int>(cores.size());
}

JobSpec openmpi_job(const Site& site, int ranks) {
  std::vector<std::string> arguments{"mpirun.openmpi", "-n", std::to_string(ranks)};
  // Both are refusals to start, not tunings.
  if (::geteuid() == 0) arguments.emplace_back("--allow-run-as-root");
  if (ranks > physical_cores()) arguments.emplace_back("--oversubscribe");
  arguments.push_back((site.peers / "openmpi_worker").string());
  return {"openmpi", ranks, {{arguments, worker_environment(site, "openmpi")}}};
}

JobSpec mpich_job(const Site& site, int ranks) {
  return {"mpich",
          ranks,
          {{{"mpirun.mpich", "-n", std::to_string(ranks), (site.peers / "mpich_worker").string()},
            worker_environment(site, "mpich")}}};
}

JobSpec lockstep_job(const Site& site, int ranks, const std::string& name,
                     const std::string& transport) {
  const std::string command = site.command.string();
  return {name,
          ranks,
          {{{command, "launch", "-n", std::to_string(ranks), "--", command, "bench", "worker",
             "--transport", transport},
            worker_environment(site, name)}}};
}

}  // namespace

std::vector<JobSpec> lockstep_jobs(const Site& site, int ranks) {
  return {lockstep_job(site, ranks, "lockstep", "auto"), lockstep_job(site, ranks, kTcp, "tcp")};
}

std::vector<JobSpec> peer_jobs(const Site& site, int ranks, std::vector<std::string>& missing) {
  std::vector<JobSpec> jobs;
  const auto offer = [&](const std::string& worker, const std::string& launcher, auto make) {
    if (!is_program(site.peers / worker)) {
      missing.push_back(
          fmt::format("{} was not built: it is not in {}", worker, site.peers.string()));
    } else if (!launcher.empty() && !on_path(launcher)) {
      missing.push_back(fmt::format("{} is not installed, so {} cannot run", launcher, worker));
    } else {
      jobs.push_back(make(site, ranks));
    }
  };
  offer("gloo_worker", "", gloo_job);
  offer("openmpi_worker", "mpirun.openmpi", openmpi_job);
  offer("mpich_worker", "mpirun.mpich", mpich_job);
  return jobs;
}

std::vector<Implementation> lockstep_implementations(const std::vector<std::string>& algorithms) {
  std::vector<Implementation> all{{kSymmetric, "lockstep", kSymmetric, "", false},
                                  {kPrivate, "lockstep", kPrivate, "", false},
                                  {kTcp, kTcp, kTcp, "", false}};
  for (const std::string& algorithm : algorithms) {
    all.push_back({"lockstep-" + algorithm, "lockstep", kSymmetric, algorithm, false});
  }
  return all;
}

std::vector<Implementation> peer_implementations(Collective op) {
  std::vector<Implementation> all;
  if (op == Collective::kAllReduce) {
    all.push_back({"gloo-ring", "gloo", "gloo-ring", "", true});
    all.push_back({"gloo-bcube", "gloo", "gloo-bcube", "", true});
  } else {
    all.push_back({"gloo", "gloo", "gloo", "", true});
  }
  all.push_back({"openmpi", "openmpi", "openmpi", "", true});
  all.push_back({"mpich", "mpich", "mpich", "", true});
  return all;
}

}  // namespace lockstep::bench
