// Pages of memory, plain or behind a descriptor that another process can map.
#pragma once

#include <cstddef>

#include "lockstep/base/file/fd.h"
#include "lockstep/comm/native/fabric.h"

namespace lockstep {

// Zeroed private pages.
SharedMemory map_private(std::size_t bytes);

// An anonymous file of zeroes (memfd).
UniqueFd make_memory_file(std::size_t bytes);
// Error(kProtocol) when the file is not `bytes` long.
SharedMemory map_file(int fd, std::size_t bytes);

}  // namespace lockstep
