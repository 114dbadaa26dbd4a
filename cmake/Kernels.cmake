# Files named neon16.cpp, avx2.cpp, avx512.cpp and amx.cpp, or *_neon16.cpp and so on, are compiled for
# those instruction sets; which of them runs is decided at run time. Reductions and codecs must round alike on all of
# them, so the compiler may not fuse a product with a sum; in kernels of operations it shall.
foreach(source IN LISTS sources)
  if(source MATCHES "/comm/reduce/")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -ffp-contract=off)
  elseif(source MATCHES "/parallel/compression/kernels_")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
      $<$<CONFIG:Release>:-O3> -ffp-contract=off)
  elseif(source MATCHES "/ops/cpu/")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
      $<$<CONFIG:Release>:-O3> -ffp-contract=fast)
    # Where tests under a sanitizer spend more time than optimising takes.
    if(LOCKSTEP_SANITIZE AND source MATCHES "/gemm/kernels_")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -O1)
    endif()
  endif()
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    if(source MATCHES "[_/]avx2\\.cpp$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -mavx2 -mfma -mf16c)
    elseif(source MATCHES "[_/]avx512\\.cpp$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
    elseif(source MATCHES "[_/]amx\\.cpp$")
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c -mamx-tile -mamx-bf16)
    endif()
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64" AND source MATCHES "[_/]neon16\\.cpp$")
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS -march=armv8.2-a+bf16+fp16fml)
  endif()
endforeach()
