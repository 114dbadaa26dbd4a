#include "lockstep/base/file/scratch_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <string>
#include <system_error>

#include "lockstep/base/error.h"

namespace lockstep {

ScratchFolder::ScratchFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep_XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) fail_errno("cannot make a folder " + name, errno);
  path_ = name;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
