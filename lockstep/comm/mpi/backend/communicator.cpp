// The Communicator that the module hands out.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/least_bytes.h"
#include "lockstep/comm/mpi/backend/engine.h"
#include "lockstep/comm/mpi/backend/environment.h"
#include "lockstep/comm/mpi/module.h"

namespace lockstep::mpi {
namespace {

class OperationState : public Work::State {
 public:
  OperationState(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation)
      : engine_(std::move(engine)), operation_(std::move(operation)) {}
  bool wait_until(Clock::time_point until) override {
    return engine_->wait_until(*operation_, until);
  }
  std::optional<Error> error() const override { return engine_->error(*operation_); }

 private:
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<Operation> operation_;
};

// Returns `mine` of every rank of `base`, by rank. All of them call it.
std::vector<int> all_give(MPI_Comm base, int mine) {
  int size = 0;
  expect(MPI_Comm_size(base, &size), "MPI_Comm_size");
  std::vector<int> all(static_cast<std::size_t>(size));
  expect(MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, base), "MPI_Allgather");
  return all;
}

// The node of each rank of the world, named after the lowest rank on it, then numbered.
std::vector<int> find_machines(MPI_Comm world) {
  int rank = 0;
  expect(MPI_Comm_rank(world, &rank), "MPI_Comm_rank");
  MPI_Comm mates = MPI_COMM_NULL;
  expect(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &mates),
         "MPI_Comm_split_type");
  int leader = rank;
  expect(MPI_Bcast(&leader, 1, MPI_INT, 0, mates), "MPI_Bcast");
  expect(MPI_Comm_free(&mates), "MPI_Comm_free");
  std::vector<int> leaders = all_give(world, leader);
  std::vector<int> known;
  for (int& each : leaders) {
    const auto found = std::find(known.begin(), known.end(), each);
    const auto number = static_cast<int>(found - known.begin());
    if (found == known.end()) known.push_back(each);
    each = number;
  }
  return leaders;
}

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(std::shared_ptr<Engine> engine, std::vector<int> machines)
      : engine_(std::move(engine)), machines_(std::move(machines)) {}

  int rank() const override { return engine_->rank(); }
  int size() const override { return engine_->size(); }
  std::string_view backend() const override { return "mpi"; }
  std::vector<int> machines() const override { return machines_; }
  std::uint64_t bytes_sent() const override { return bytes_sent_.load(std::memory_order_relaxed); }

  void run(const Call& call) override { start(call).wait(); }

  Work start(const Call& call) override {
    if (!call.algorithm.empty() && call.algorithm != kAlgorithm) {
      fail(ErrorCode::kUnsupported,
           "{}: algorithm '{}' cannot be forced on the mpi communicator, which leaves the choice "
           "to MPI; the native one has it",
           name(call.kind), call.algorithm);
    }
    validate(call, rank(), size());
    bytes_sent_.fetch_add(least_bytes_sent(call, rank(), size()), std::memory_order_relaxed);
    return work(engine_->start(call));
  }

  void signal(int peer) override {
    expect_rank(peer);
    engine_->signal(peer);
  }

  void wait_signal(int peer) override {
    expect_rank(peer);
    work(engine_->start_wait_signal(peer)).wait();
  }

  std::unique_ptr<Communicator> split(int color, int key) override {
    // MPI's own call cannot be bounded by a deadline, so all ranks meet first.
    work(engine_->start_special(Special::kSplit, 0)).wait();
    MPI_Comm part = MPI_COMM_NULL;
    std::vector<int> machines;
    {
      const std::lock_guard lock(mutex());
      expect(MPI_Comm_split(engine_->base(), color < 0 ? MPI_UNDEFINED : color, key, &part),
             "MPI_Comm_split");
      if (part == MPI_COMM_NULL) return nullptr;
      machines = all_give(part, machines_[static_cast<std::size_t>(rank())]);
    }
    return std::make_unique<MpiCommunicator>(std::make_shared<Engine>(part, engine_->options()),
                                             std::move(machines));
  }

  SymmetricBuffer allocate(std::size_t bytes) override {
    work(engine_->start_special(Special::kAllocate, bytes)).wait();
    if (bytes == 0) return {};
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail_errno(fmt::format("allocating {} bytes", bytes), errno);
    std::shared_ptr<void> owner(memory, [bytes](void* p) { munmap(p, bytes); });
    return SymmetricBuffer(std::move(owner), static_cast<std::byte*>(memory), bytes);
  }

  void abort(std::string_view reason) override {
    engine_->abort(
        Error(ErrorCode::kAborted, fmt::format("rank {} aborted: {}", rank(), reason), {rank()}));
  }

  Choice choice(const Call&) const override {
    return {std::string(kAlgorithm), "MPI selects its own algorithm"};
  }

 private:
  static constexpr std::string_view kAlgorithm = "mpi";

  Work work(std::shared_ptr<Operation> operation) const {
    return Work(std::make_shared<OperationState>(engine_, std::move(operation)));
  }

  void expect_rank(int peer) const {
    if (peer < 0 || peer >= size()) {
      fail(ErrorCode::kInvalidArgument, "peer {} is not one of the ranks 0 to {}", peer,
           size() - 1);
    }
  }

  std::shared_ptr<Engine> engine_;
  std::vector<int> machines_;  // of each rank
  std::atomic<std::uint64_t> bytes_sent_{0};
};

}  // namespace
}  // namespace lockstep::mpi

extern "C" int lockstep_mpi_version() { return lockstep::mpi::kModuleVersion; }

extern "C" lockstep::Communicator* lockstep_mpi_communicator(const lockstep::MpiOptions* options) {
  using namespace lockstep;
  mpi::initialize();
  MPI_Comm world = MPI_COMM_NULL;
  std::vector<int> machines;
  {
    const std::lock_guard lock(mpi::mutex());
    mpi::expect(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
    mpi::expect(MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    machines = mpi::find_machines(world);
  }
  return new mpi::MpiCommunicator(std::make_shared<mpi::Engine>(world, *options),
                                  std::move(machines));
}
