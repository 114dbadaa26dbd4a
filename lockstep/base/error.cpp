#include "lockstep/base/error.h"

#include <system_error>

namespace lockstep {

std::string_view name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kMismatch:
      return "mismatch";
    case ErrorCode::kPeerLost:
      return "peer lost";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kSystem:
      return "system error";
    case ErrorCode::kProtocol:
      return "protocol error";
    case ErrorCode::kUnauthorized:
      return "unauthorized";
    case ErrorCode::kNonFinite:
      return "not a finite number";
    case ErrorCode::kCorrupted:
      return "corrupted data";
  }
  return "unknown error";
}

void fail_errno(std::string_view what, int error_number, std::source_location where) {
  throw Error(ErrorCode::kSystem,
              fmt::format("{}: {}", what, std::generic_category().message(error_number)), {},
              where);
}

}  // namespace lockstep
