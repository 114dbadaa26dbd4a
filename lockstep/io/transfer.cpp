#include "lockstep/io/transfer.h"

#include <unistd.h>

#include <cerrno>

namespace lockstep::io {

bool advance(Transfer& transfer, long result) {
  if (result == -EINTR || result == -EAGAIN) return false;
  if (result < 0) {
    transfer.error = static_cast<int>(-result);
    return true;
  }
  if (result == 0 && transfer.bytes > 0) {
    transfer.error = transfer.writes ? EIO : Transfer::kFileEnded;
    return true;
  }
  const auto moved = static_cast<std::size_t>(result);
  transfer.memory += moved;
  transfer.offset += moved;
  transfer.bytes -= moved;
  return transfer.bytes == 0;
}

void carry_out(Transfer& transfer) {
  if (transfer.bytes == 0) return;
  long moved = 0;
  do {
    const auto offset = static_cast<off_t>(transfer.offset);
    moved = transfer.writes ? ::pwrite(transfer.file, transfer.memory, transfer.bytes, offset)
                            : ::pread(transfer.file, transfer.memory, transfer.bytes, offset);
  } while (!advance(transfer, moved < 0 ? -errno : moved));
}

}  // namespace lockstep::io
