// One rank of an MPI job. The same source is built with each installed MPI and run by its own
// mpirun with its defaults.
#include <mpi.h>

#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "lockstep/bench/collectives/worker.h"

namespace {

using lockstep::Collective;
using lockstep::DType;
using lockstep::bench::Buffers;
using lockstep::bench::Task;

// The MPI type that can be summed; MPI_DATATYPE_NULL for types that MPI does not know.
MPI_Datatype arithmetic_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kI8:
      return MPI_INT8_T;
    case DType::kU8:
      return MPI_UINT8_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
    case DType::kF16:
    case DType::kBF16:
      return MPI_DATATYPE_NULL;
  }
  return MPI_DATATYPE_NULL;
}

// Good enough to be moved.
MPI_Datatype movable_type(DType dtype) {
  const MPI_Datatype type = arithmetic_type(dtype);
  return type == MPI_DATATYPE_NULL ? MPI_UINT16_T : type;
}

void check(int code) {
  if (code != MPI_SUCCESS) throw std::runtime_error("MPI error " + std::to_string(code));
}

class MpiSubject : public lockstep::bench::Subject {
 public:
  MpiSubject() {
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::string unsupported(const Task& task) override {
    if (reduces(task.op) && arithmetic_type(task.dtype) == MPI_DATATYPE_NULL) {
      return "MPI has no sum of " + std::string(name(task.dtype));
    }
    if (task.bytes / size_of(task.dtype) > INT_MAX) return "MPI counts elements in an int";
    return {};
  }

  Buffers prepare(const Task& task) override {
    task_ = task;
    type_ = movable_type(task.dtype);
    const auto extent = lockstep::bench::extent(task, size_);
    in_count_ = static_cast<int>(extent.in);
    block_ = static_cast<int>(extent.block);
    return buffers_ = memory_.prepare(task, size_);
  }

  void barrier() override { check(MPI_Barrier(MPI_COMM_WORLD)); }

  void run() override {
    void* in = buffers_.in;
    void* out = buffers_.out;
    switch (task_.op) {
      case Collective::kAllReduce:
        return check(MPI_Allreduce(MPI_IN_PLACE, out, in_count_, type_, MPI_SUM, MPI_COMM_WORLD));
      case Collective::kBroadcast:
        return check(MPI_Bcast(out, in_count_, type_, task_.root, MPI_COMM_WORLD));
      case Collective::kAllGather:
        return check(MPI_Allgather(in, block_, type_, out, block_, type_, MPI_COMM_WORLD));
      case Collective::kReduceScatter:
        return check(MPI_Reduce_scatter_block(in, out, block_, type_, MPI_SUM, MPI_COMM_WORLD));
      case Collective::kAllToAll:
        return check(MPI_Alltoall(in, block_, type_, out, block_, type_, MPI_COMM_WORLD));
      default:
        throw std::runtime_error("no such collective in this worker");
    }
  }

 private:
  int rank_ = 0;
  int size_ = 0;
  int in_count_ = 0;
  int block_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
  Task task_;
  Buffers buffers_;
  lockstep::bench::PrivateBuffers memory_;
};

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  try {
    MpiSubject subject;
    if (lockstep::bench::serve(subject) != EXIT_SUCCESS) MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
  }
  MPI_Finalize();
  return EXIT_SUCCESS;
}
