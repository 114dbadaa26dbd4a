# oneDNN multiplies matrices. Its headers are needed here, the library when lockstep runs (it is
# loaded then, and not linked); where either is missing, our own kernels do all the work.
#
# The headers are looked for by themselves: the package's own config file also wants OpenCL's on x86,
# which nothing here uses.
set(onednn_include_dir "")
set(onednn_version "none")
if(LOCKSTEP_ONEDNN)
  find_path(ONEDNN_INCLUDE_DIR oneapi/dnnl/dnnl_version.h)
  if(ONEDNN_INCLUDE_DIR)
    file(STRINGS ${ONEDNN_INCLUDE_DIR}/oneapi/dnnl/dnnl_version.h lines REGEX "DNNL_VERSION_(MAJOR|MINOR) ")
    string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*" "\\1.\\2" onednn_version "${lines}")
    if(onednn_version VERSION_GREATER_EQUAL 2.6 AND onednn_version VERSION_LESS 3)
      set(onednn_include_dir ${ONEDNN_INCLUDE_DIR})
    endif()
  endif()
endif()
if(onednn_include_dir)
  list(FILTER sources EXCLUDE REGEX "/gemm/no_onednn\\.cpp$")
  include_directories(SYSTEM ${onednn_include_dir})
else()
  message(STATUS "oneDNN: not used (LOCKSTEP_ONEDNN=${LOCKSTEP_ONEDNN}, found: ${onednn_version})")
  list(FILTER sources EXCLUDE REGEX "/gemm/backend/")
endif()
