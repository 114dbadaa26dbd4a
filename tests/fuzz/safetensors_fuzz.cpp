// Safetensors files whose bytes lie, through files that have no name.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/file/fd.h"
#include "lockstep/io/parted_safetensors.h"
#include "lockstep/io/safetensors.h"

namespace {

// No tensor of a file can be larger than it.
void load_all(const lockstep::io::TensorSource& source, std::size_t size) {
  for (const std::string_view name : source.names()) {
    if (source.at(name).bytes > size) std::abort();  // it was believed
    try {
      source.load(name);
    } catch (const lockstep::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const lockstep::UniqueFd file(::memfd_create("fuzz", MFD_CLOEXEC));
  if (!file || ::write(file.get(), data, size) != static_cast<ssize_t>(size)) std::abort();
  const std::string name = std::to_string(file.get());
  try {
    load_all(lockstep::io::SafetensorsFile("/proc/self/fd/" + name), size);
    load_all(lockstep::io::PartedSafetensors("/proc/self/fd", {&name, 1}), size);
  } catch (const lockstep::Error&) {
  }
  return 0;
}
