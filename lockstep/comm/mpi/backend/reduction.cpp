#include "lockstep/comm/mpi/backend/reduction.h"

#include "lockstep/comm/mpi/backend/environment.h"
#include "lockstep/comm/reduce/combine.h"

namespace lockstep::mpi {
namespace {

MPI_Op built_in(const ReduceOp& op, DType dtype) {
  const bool is_half = dtype == DType::kF16 || dtype == DType::kBF16;
  const bool is_float = is_half || dtype == DType::kF32 || dtype == DType::kF64;
  switch (op.kind) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return is_half ? MPI_OP_NULL : MPI_SUM;
    case ReduceOp::kProd:
      return is_half ? MPI_OP_NULL : MPI_PROD;
    case ReduceOp::kMin:
      return is_float ? MPI_OP_NULL : MPI_MIN;
    case ReduceOp::kMax:
      return is_float ? MPI_OP_NULL : MPI_MAX;
    case ReduceOp::kUser:
      return MPI_OP_NULL;
  }
  return MPI_OP_NULL;
}

// Both live as long as MPI does.
int attribute_key() {
  static const int key = [] {
    int made = MPI_KEYVAL_INVALID;
    expect(MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, &made, nullptr),
           "MPI_Type_create_keyval");
    return made;
  }();
  return key;
}

MPI_Op combining_op(MPI_User_function* function) {
  static const MPI_Op op = [function] {
    MPI_Op made = MPI_OP_NULL;
    expect(MPI_Op_create(function, /*commute=*/1, &made), "MPI_Op_create");
    return made;
  }();
  return op;
}

}  // namespace

Reduction::Reduction(const ReduceOp& op, DType dtype)
    : op_(op), dtype_(dtype), type_(datatype(dtype)), mpi_op_(built_in(op, dtype)) {
  if (mpi_op_ != MPI_OP_NULL) return;
  mpi_op_ = combining_op(&Reduction::call_back);
  const int key = attribute_key();
  expect(MPI_Type_dup(datatype(dtype), &type_), "MPI_Type_dup");
  owns_type_ = true;
  expect(MPI_Type_set_attr(type_, key, this), "MPI_Type_set_attr");
}

Reduction::~Reduction() {
  if (owns_type_) MPI_Type_free(&type_);
}

void Reduction::call_back(void* in, void* in_out, int* count, MPI_Datatype* type) {
  void* attribute = nullptr;
  int found = 0;
  MPI_Type_get_attr(*type, attribute_key(), &attribute, &found);
  const auto& self = *static_cast<const Reduction*>(attribute);
  const std::byte* inputs[] = {static_cast<const std::byte*>(in),
                               static_cast<const std::byte*>(in_out)};
  std::byte* output = static_cast<std::byte*>(in_out);
  combine(inputs, {&output, 1}, static_cast<std::size_t>(*count), self.dtype_, self.op_);
}

}  // namespace lockstep::mpi
