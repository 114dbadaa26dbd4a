# Sanitizer builds spend much of their time reading the same headers; LOCKSTEP_PRECOMPILE reads them
# once per target. The other presets do without, so that every file has to include what it uses.
function(lockstep_precompile target)
  if(NOT LOCKSTEP_PRECOMPILE)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE
    <algorithm> <atomic> <chrono> <cstddef> <cstdint> <cstring> <filesystem> <fstream> <functional>
    <map> <memory> <mutex> <numeric> <optional> <random> <span> <sstream> <string> <string_view>
    <thread> <vector> <fmt/format.h> <nlohmann/json.hpp> ${ARGN})
  target_compile_options(${target} PRIVATE -fpch-preprocess)
  # A file of another instruction set cannot use what was compiled for this one.
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "combine_[a-z0-9]+\\.cpp$")
  set_source_files_properties(${sources} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
endfunction()
