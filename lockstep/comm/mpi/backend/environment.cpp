#include "lockstep/comm/mpi/backend/environment.h"

#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::mpi {
namespace {

// Finalises, when the process exits, what was initialised here.
struct Finalizer {
  ~Finalizer() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (owned && !abandoned && finalized == 0) MPI_Finalize();
  }
  bool owned = false;
  bool abandoned = false;
};
Finalizer finalizer;

// mpirun of one MPI and the library of another make every rank a group of its own.
void expect_own_mpirun() {
  int size = 0;
  expect(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"}) {
    const char* text = std::getenv(variable);
    if (text == nullptr || size != 1 || std::atoi(text) <= 1) continue;
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(library, &length);
    const std::string_view first_line = std::string_view(library).substr(0, 60);
    fail(ErrorCode::kUnsupported,
         "{} says that {} ranks were started, but MPI sees this one alone: they were started by "
         "another MPI than the one the module was built for ({}); use that one's mpirun",
         variable, text, first_line.substr(0, first_line.find_first_of(",\n")));
  }
}

}  // namespace

void initialize() {
  const std::lock_guard lock(mutex());
  int initialized = 0;
  int finalized = 0;
  MPI_Initialized(&initialized);
  MPI_Finalized(&finalized);
  if (finalized != 0) {
    fail(ErrorCode::kInvalidArgument, "MPI was finalised and cannot be started again");
  }
  int level = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    expect(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    finalizer.owned = true;
  }
  if (level < MPI_THREAD_SERIALIZED) {
    fail(ErrorCode::kUnsupported,
         "MPI provides thread level {} where MPI_THREAD_SERIALIZED ({}) is needed; a program that "
         "initialises MPI itself has to ask for it with MPI_Init_thread",
         level, static_cast<int>(MPI_THREAD_SERIALIZED));
  }
  expect_own_mpirun();
}

void leave_unfinalized() { finalizer.abandoned = true; }

std::mutex& mutex() {
  static std::mutex mutex;
  return mutex;
}

void expect(int result, std::string_view what) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  fail(ErrorCode::kSystem, "{} failed: {}", what, text);
}

MPI_Datatype datatype(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return MPI_FLOAT;
    case DType::kF64:
      return MPI_DOUBLE;
    case DType::kF16:
    case DType::kBF16:
      return MPI_UINT16_T;
    case DType::kI8:
      return MPI_INT8_T;
    case DType::kU8:
      return MPI_UINT8_T;
    case DType::kI32:
      return MPI_INT32_T;
    case DType::kI64:
      return MPI_INT64_T;
  }
  return MPI_DATATYPE_NULL;
}

}  // namespace lockstep::mpi
