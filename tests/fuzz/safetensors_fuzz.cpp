// Safetensors files whose bytes lie, through files that have no name.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/fd.h"
#include "lockstep/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lockstep::UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!file || ::write(file.get(), data, size) != static_cast<ssize_t>(size)) std::abort();
  try {
    const lockstep::io::SafetensorsFile opened("/proc/self/fd/" + std::to_string(file.get()));
    for (const auto& entry : opened.entries()) {
      if (entry.bytes > size) std::abort();  // it was believed
      try {
        opened.load(entry.name);
      } catch (const lockstep::Error&) {
      }
    }
  } catch (const lockstep::Error&) {
  }
  return 0;
}
