#include "lockstep/comm/nccl/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/comm/cuda_module.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace lockstep::nccl {
namespace {

static_assert(static_cast<int>(Result::kSuccess) == ncclSuccess);
static_assert(static_cast<int>(Result::kInProgress) == ncclInProgress);
static_assert(static_cast<int>(Type::kI8) == ncclInt8);
static_assert(static_cast<int>(Type::kU8) == ncclUint8);
static_assert(static_cast<int>(Type::kI32) == ncclInt32);
static_assert(static_cast<int>(Type::kI64) == ncclInt64);
static_assert(static_cast<int>(Type::kF16) == ncclFloat16);
static_assert(static_cast<int>(Type::kF32) == ncclFloat32);
static_assert(static_cast<int>(Type::kF64) == ncclFloat64);
static_assert(static_cast<int>(Type::kBF16) == ncclBfloat16);
static_assert(static_cast<int>(Op::kSum) == ncclSum);
static_assert(static_cast<int>(Op::kProd) == ncclProd);
static_assert(static_cast<int>(Op::kMax) == ncclMax);
static_assert(static_cast<int>(Op::kMin) == ncclMin);
static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(Config::kDefault == NCCL_CONFIG_UNDEF_INT);
static_assert(offsetof(Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(Config, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(sizeof(Config) <= sizeof(ncclConfig_t));

}  // namespace
}  // namespace lockstep::nccl
#endif

namespace lockstep::nccl {
namespace {

constexpr const char* kInstead =
    "install NCCL (libnccl2 in NVIDIA's packages), name its file in LOCKSTEP_NCCL_LIBRARY, or use "
    "ranks of one node with comm.device_backend = \"native\"";

template <class Function>
void find(void* handle, const std::string& file, Function*& function, const char* symbol) {
  function = reinterpret_cast<Function*>(::dlsym(handle, symbol));
  if (function == nullptr) {
    fail(ErrorCode::kUnsupported, "{} has no {}: it is not NCCL {} or later; {}", file, symbol,
         version_text(kLeastVersion), kInstead);
  }
}

Library load_library() {
  const char* const named = std::getenv(kFileVariable);
  const char* const wanted = named != nullptr && *named != '\0' ? named : kFile;
  void* const handle = ::dlopen(wanted, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    fail(ErrorCode::kUnsupported, "NCCL was not found ({}); {}", ::dlerror(), kInstead);
  }
  Library made;
  made.file = wanted;
  find(handle, made.file, made.get_version, "ncclGetVersion");
  if (Dl_info where{}; ::dladdr(reinterpret_cast<void*>(made.get_version), &where) != 0) {
    made.file = where.dli_fname;
  }
  if (made.get_version(&made.version) != Result::kSuccess || made.version < kLeastVersion) {
    fail(ErrorCode::kUnsupported, "NCCL {} in {} is too old: {} or later is needed; {}",
         version_text(made.version), made.file, version_text(kLeastVersion), kInstead);
  }
  find(handle, made.file, made.get_unique_id, "ncclGetUniqueId");
  find(handle, made.file, made.init_rank, "ncclCommInitRankConfig");
  find(handle, made.file, made.finalize, "ncclCommFinalize");
  find(handle, made.file, made.destroy, "ncclCommDestroy");
  find(handle, made.file, made.abort, "ncclCommAbort");
  find(handle, made.file, made.async_error, "ncclCommGetAsyncError");
  find(handle, made.file, made.error_string, "ncclGetErrorString");
  find(handle, made.file, made.last_error, "ncclGetLastError");
  find(handle, made.file, made.group_start, "ncclGroupStart");
  find(handle, made.file, made.group_end, "ncclGroupEnd");
  find(handle, made.file, made.send, "ncclSend");
  find(handle, made.file, made.receive, "ncclRecv");
  find(handle, made.file, made.broadcast, "ncclBroadcast");
  find(handle, made.file, made.all_gather, "ncclAllGather");
  find(handle, made.file, made.reduce, "ncclReduce");
  find(handle, made.file, made.all_reduce, "ncclAllReduce");
  find(handle, made.file, made.reduce_scatter, "ncclReduceScatter");
  return made;
}

// The library, or why there is none.
struct Found {
  Library library;
  std::optional<Error> failure;
};

Found find_library() {
  Found found;
  try {
    found.library = load_library();
  } catch (const Error& error) {
    found.failure = error;
  }
  return found;
}

}  // namespace

const Library& library() {
  static const Found kFound = find_library();
  if (kFound.failure) throw Error(*kFound.failure);
  return kFound.library;
}

std::string version_text(int version) {
  if (version < 10000) {  // up to 2.8
    return fmt::format("{}.{}.{}", version / 1000, version / 100 % 10, version % 100);
  }
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Type::kF32;
    case DType::kF64:
      return Type::kF64;
    case DType::kF16:
      return Type::kF16;
    case DType::kBF16:
      return Type::kBF16;
    case DType::kI8:
      return Type::kI8;
    case DType::kU8:
      return Type::kU8;
    case DType::kI32:
      return Type::kI32;
    case DType::kI64:
      return Type::kI64;
  }
  return Type::kU8;
}

}  // namespace lockstep::nccl

extern "C" void lockstep_nccl_info(lockstep::NcclInfo* info) {
  try {
    const lockstep::nccl::Library& found = lockstep::nccl::library();
    info->version = lockstep::nccl::version_text(found.version);
    info->file = found.file;
  } catch (const lockstep::Error& error) {
    info->problem = error.what();
  }
}
