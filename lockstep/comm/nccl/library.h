// The part of NCCL that lockstep uses. The library is loaded when it is first needed: neither a
// build nor the CUDA module depends on it, and where it is missing the error says so.
//
// Types and values are those of NCCL's public interface since 2.18; library.cpp compares them with
// nccl.h where the build finds it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

#include "lockstep/comm/device_communicator.h"
#include "lockstep/comm/reduce_op.h"

namespace lockstep::nccl {

inline constexpr char kFile[] = "libnccl.so.2";
inline constexpr char kFileVariable[] = "LOCKSTEP_NCCL_LIBRARY";  // names another file
inline constexpr int kLeastVersion = 21800;                       // 2.18.0

enum class Result : int { kSuccess = 0, kInProgress = 7 };  // all others are errors
enum class Type : int {
  kI8 = 0,
  kU8 = 1,
  kI32 = 2,
  kI64 = 4,
  kF16 = 6,
  kF32 = 7,
  kF64 = 8,
  kBF16 = 9,
};
enum class Op : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3 };

Type type_of(DType dtype);

using Comm = struct ncclComm*;

struct UniqueId {
  char bytes[128];
};

// As of 2.18; later versions have more fields and take their defaults for them.
struct Config {
  static constexpr int kDefault = -2147483647 - 1;

  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kLeastVersion;
  int blocking = kDefault;
  int cga_cluster_size = kDefault;
  int min_ctas = kDefault;
  int max_ctas = kDefault;
  const char* net_name = nullptr;
  int split_share = kDefault;
};

struct Library {
  std::string file;  // where it was found
  int version = 0;   // 22809 for 2.28.9

  Result (*get_version)(int*) = nullptr;
  Result (*get_unique_id)(UniqueId*) = nullptr;
  Result (*init_rank)(Comm*, int ranks, UniqueId, int rank, Config*) = nullptr;
  Result (*finalize)(Comm) = nullptr;
  Result (*destroy)(Comm) = nullptr;
  Result (*abort)(Comm) = nullptr;
  Result (*async_error)(Comm, Result*) = nullptr;
  const char* (*error_string)(Result) = nullptr;
  const char* (*last_error)(Comm) = nullptr;
  Result (*group_start)() = nullptr;
  Result (*group_end)() = nullptr;
  Result (*send)(const void*, std::size_t, Type, int peer, Comm, cudaStream_t) = nullptr;
  Result (*receive)(void*, std::size_t, Type, int peer, Comm, cudaStream_t) = nullptr;
  Result (*broadcast)(const void*, void*, std::size_t, Type, int root, Comm,
                      cudaStream_t) = nullptr;
  Result (*all_gather)(const void*, void*, std::size_t, Type, Comm, cudaStream_t) = nullptr;
  Result (*reduce)(const void*, void*, std::size_t, Type, Op, int root, Comm,
                   cudaStream_t) = nullptr;
  Result (*all_reduce)(const void*, void*, std::size_t, Type, Op, Comm, cudaStream_t) = nullptr;
  Result (*reduce_scatter)(const void*, void*, std::size_t, Type, Op, Comm, cudaStream_t) = nullptr;
};

// Throws Error(kUnsupported) where there is none, or one before kLeastVersion.
const Library& library();

std::string version_text(int version);  // "2.28.9"

}  // namespace lockstep::nccl
