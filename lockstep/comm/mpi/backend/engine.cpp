#include "lockstep/comm/mpi/backend/engine.h"

#include <cstring>
#include <thread>

#include "lockstep/comm/mpi/backend/environment.h"

namespace lockstep::mpi {
namespace {

MPI_Comm duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  expect(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  expect(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

}  // namespace

Engine::Engine(MPI_Comm base, const MpiOptions& options) : options_(options), base_(base) {
  const std::lock_guard lock(mutex());
  expect(MPI_Comm_rank(base_, &rank_), "MPI_Comm_rank");
  expect(MPI_Comm_size(base_, &size_), "MPI_Comm_size");
  expect(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank_), "MPI_Comm_rank");
  int all_check = options_.check ? 1 : 0;
  int none_check = 1 - all_check;
  int votes[] = {all_check, none_check};
  expect(MPI_Allreduce(MPI_IN_PLACE, votes, 2, MPI_INT, MPI_MIN, base_), "MPI_Allreduce");
  if (votes[0] == 0 && votes[1] == 0) {
    fail(ErrorCode::kMismatch,
         "some ranks check their calls and some do not; set comm.check alike for all");
  }
  check_comm_ = duplicate(base_);
  data_comm_ = duplicate(base_);
  point_comm_ = duplicate(base_);
  control_ = std::make_unique<ControlChannel>(point_comm_, rank_, size_);
}

Engine::~Engine() {
  drain();
  const std::lock_guard lock(mutex());
  if (!idle() || abandoned_) {
    leave_unfinalized();
    for (auto& operation : operations_) keep_for_good(operation);
    (void)control_.release();  // MPI still receives into it
    return;
  }
  control_->close();
  for (MPI_Comm* comm : {&check_comm_, &data_comm_, &point_comm_, &base_}) MPI_Comm_free(comm);
}

void Engine::drain() {
  const auto limit = Clock::now() + options_.deadline;
  while (Clock::now() < limit) {
    {
      const std::lock_guard lock(mutex());
      if (failure_ || idle()) return;
      advance();
    }
    std::this_thread::yield();
  }
}

std::shared_ptr<Operation> Engine::add(const Call& call, int peer, std::string text) {
  if (failure_) throw *failure_;
  auto operation = std::make_shared<Operation>();
  operation->call = call;
  operation->text = std::move(text);
  operation->peer = peer;
  const bool counts = peer < 0 && call.kind != Collective::kCopy;
  operation->record = recorder_.begin(
      counts ? fmt::format("operation {}: {}", started_ + 1, operation->text) : operation->text);
  operation->deadline = Clock::now() + options_.deadline;
  operations_.push_back(operation);
  return operation;
}

std::shared_ptr<Operation> Engine::start(const Call& call) {
  expect_countable(call, size_);
  const std::lock_guard lock(mutex());
  auto operation = add(call, call.peer, describe(call));
  if (call.kind == Collective::kCopy) {
    if (call.in.count > 0) {
      std::memmove(call.out.bytes, call.in.bytes, call.in.count * size_of(call.in.dtype));
    }
    operation->stage = Stage::kEnded;
  } else if (operation->is_collective()) {
    operation->own = fingerprint(call, started_++);
    if (options_.check) begin_check(*operation);
  } else if (options_.check && call.kind == Collective::kReceive) {
    operation->stage = Stage::kChecking;
    expect(MPI_Irecv(&operation->header, sizeof(Header), MPI_BYTE, call.peer, kHeaderTag,
                     point_comm_, &operation->request),
           "MPI_Irecv");
  } else if (options_.check && call.kind == Collective::kSend) {
    operation->header = {call.in.count, static_cast<std::uint64_t>(call.in.dtype)};
    expect(MPI_Isend(&operation->header, sizeof(Header), MPI_BYTE, call.peer, kHeaderTag,
                     point_comm_, &operation->request),
           "MPI_Isend");
  }
  advance();
  return operation;
}

std::shared_ptr<Operation> Engine::start_special(Special special, std::size_t bytes) {
  const std::lock_guard lock(mutex());
  const Fingerprint own = fingerprint(special, bytes, started_);
  auto operation = add(barrier(), -1, describe(own));
  operation->own = own;
  ++started_;
  if (options_.check) begin_check(*operation);
  advance();
  return operation;
}

std::shared_ptr<Operation> Engine::start_wait_signal(int peer) {
  const std::lock_guard lock(mutex());
  auto operation = add(barrier(), peer, fmt::format("wait_signal of rank {}", peer));
  operation->is_signal = true;
  operation->stage = Stage::kMoving;
  expect(MPI_Irecv(nullptr, 0, MPI_BYTE, peer, kSignalTag, point_comm_, &operation->request),
         "MPI_Irecv");
  advance();
  return operation;
}

void Engine::signal(int peer) {
  const std::lock_guard lock(mutex());
  if (failure_) throw *failure_;
  control_->signal(peer);
}

void Engine::begin_check(Operation& operation) {
  operation.stage = Stage::kChecking;
  operation.all.resize(static_cast<std::size_t>(size_));
  expect(MPI_Iallgather(&operation.own, sizeof(Fingerprint), MPI_BYTE, operation.all.data(),
                        sizeof(Fingerprint), MPI_BYTE, check_comm_, &operation.request),
         "MPI_Iallgather");
}

bool Engine::wait_until(const Operation& operation, Clock::time_point until) {
  while (true) {
    {
      const std::lock_guard lock(mutex());
      if (!operation.ended()) advance();
      if (operation.ended()) return true;
    }
    if (Clock::now() >= until) return false;
    std::this_thread::yield();
  }
}

std::optional<Error> Engine::error(const Operation& operation) {
  const std::lock_guard lock(mutex());
  return operation.error;
}

void Engine::abort(const Error& error) {
  const std::lock_guard lock(mutex());
  if (!failure_) fail_all(error, Known::kHere);
}

}  // namespace lockstep::mpi
