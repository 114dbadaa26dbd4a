// A ReduceOp as an MPI_Op and the datatype to use it with.
//
// MPI's own operations are used where they have the same result. The others (16-bit floats, min and
// max of floats because of NaNs, user reductions) use combine(): MPI's callback gets only the
// datatype, so an attribute of the datatype says what to do.
#pragma once

#include <mpi.h>

#include "lockstep/comm/reduce_op.h"

namespace lockstep::mpi {

class Reduction {
 public:
  Reduction(const ReduceOp& op, DType dtype);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  MPI_Datatype type() const { return type_; }
  MPI_Op op() const { return mpi_op_; }

 private:
  static void call_back(void* in, void* in_out, int* count, MPI_Datatype* type);

  ReduceOp op_;
  DType dtype_;
  MPI_Datatype type_;
  MPI_Op mpi_op_;
  bool owns_type_ = false;
};

}  // namespace lockstep::mpi
