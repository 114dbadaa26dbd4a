// A subject for tests of the bench itself: all_reduce of f32 through a file that all ranks map, and
// on demand every kind of trouble. The test program starts itself as its own workers.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>

#include "lockstep/bench/collectives/job.h"
#include "lockstep/bench/collectives/worker.h"

namespace lockstep::bench {

inline constexpr std::size_t kMostFloats = 4096;
inline constexpr int kMostFakeRanks = 4;

struct Arena {
  std::atomic<int> arrived;
  std::atomic<int> generation;
  float data[kMostFakeRanks][kMostFloats];
};

// Flavours: "good"; "wrong" forgets the other ranks; on the last rank "crash" ends the process,
// "hang" never returns, "throw" throws; "unable" is not supported.
class FakeSubject : public Subject {
 public:
  FakeSubject(int rank, int size, const std::string& path) : rank_(rank), size_(size) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Arena)) != 0) throw std::runtime_error("no arena");
    void* mapped = ::mmap(nullptr, sizeof(Arena), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (mapped == MAP_FAILED) throw std::runtime_error("no arena");
    arena_ = static_cast<Arena*>(mapped);
  }
  ~FakeSubject() override { ::munmap(arena_, sizeof(Arena)); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string unsupported(const Task& task) override {
    return task.flavour == "unable" ? "the fake cannot" : "";
  }
  Buffers prepare(const Task& task) override {
    task_ = task;
    return buffers_ = memory_.prepare(task, size_);
  }
  void barrier() override {
    const int before = arena_->generation.load();
    if (arena_->arrived.fetch_add(1) + 1 == size_) {
      arena_->arrived.store(0);
      arena_->generation.store(before + 1);
    } else {
      while (arena_->generation.load() == before) ::sched_yield();
    }
  }
  void run() override {
    trouble();
    const std::size_t count = task_.bytes / sizeof(float);
    auto* data = reinterpret_cast<float*>(buffers_.in);
    std::copy_n(data, count, arena_->data[rank_]);
    barrier();
    for (int other = 0; other < size_ && task_.flavour != "wrong"; ++other) {
      if (other == rank_) continue;
      for (std::size_t i = 0; i < count; ++i) data[i] += arena_->data[other][i];
    }
    barrier();
  }

 private:
  void trouble() {
    if (rank_ != size_ - 1) return;
    if (task_.flavour == "crash") {
      std::fprintf(stderr, "rank %d gives up\n", rank_);
      ::_exit(3);
    }
    if (task_.flavour == "throw") throw std::runtime_error("out of luck");
    while (task_.flavour == "hang") ::pause();
  }

  int rank_;
  int size_;
  Arena* arena_ = nullptr;
  Task task_;
  Buffers buffers_;
  PrivateBuffers memory_;
};

// A job of this very program: its test FakeWorker.DISABLED_Serve is the worker.
inline JobSpec fake_job(const std::string& name, int ranks, const std::string& socket,
                        const std::filesystem::path& folder) {
  JobSpec spec{name, ranks, {}};
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  for (int rank = 0; rank < ranks; ++rank) {
    spec.programs.push_back(
        {{self, "--gtest_filter=FakeWorker.DISABLED_Serve", "--gtest_also_run_disabled_tests"},
         {{kSocketVariable, socket},
          {kJobVariable, name},
          {kDirectoryVariable, folder.string()},
          {"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(ranks)}}});
  }
  return spec;
}

inline int serve_fake() {
  const std::string path =
      std::string(std::getenv(kDirectoryVariable)) + "/" + std::getenv(kJobVariable);
  FakeSubject subject(std::atoi(std::getenv("RANK")), std::atoi(std::getenv("WORLD_SIZE")), path);
  return serve(subject);
}

}  // namespace lockstep::bench
