# Intel's multi-buffer library encrypts what crosses the network, on CPUs with VAES. Its header is
# needed here, the library when lockstep runs (it is loaded then, and not linked); where either is
# missing, OpenSSL encrypts.
if(LOCKSTEP_IPSEC_MB)
  find_path(IPSEC_MB_INCLUDE_DIR intel-ipsec-mb.h)
endif()
if(LOCKSTEP_IPSEC_MB AND IPSEC_MB_INCLUDE_DIR)
  list(FILTER sources EXCLUDE REGEX "/net/no_aead_ipsec_mb\\.cpp$")
  include_directories(SYSTEM ${IPSEC_MB_INCLUDE_DIR})
else()
  message(STATUS "intel-ipsec-mb: not used (LOCKSTEP_IPSEC_MB=${LOCKSTEP_IPSEC_MB})")
  list(FILTER sources EXCLUDE REGEX "/net/aead_ipsec_mb\\.cpp$")
endif()
