# Kernels are compiled for several instruction sets (lockstep/base/simd/kernel_table.h). In a folder of
# kernels the file avx2.cpp is compiled for AVX2, and so on; scalar.cpp and neon.cpp need no options.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(options_of_avx2 -mavx2 -mfma -mf16c)
  set(options_of_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
  set(options_of_amx ${options_of_avx512} -mamx-tile -mamx-bf16)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(options_of_neon16 -march=armv8.2-a+bf16+fp16fml)
endif()

# The sources under lockstep/FOLDER are kernels, compiled with the options that follow.
function(lockstep_kernels folder)
  foreach(source IN LISTS sources)
    if(source MATCHES "/lockstep/${folder}/")
      get_filename_component(isa ${source} NAME_WE)
      set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS
        $<$<CONFIG:Release>:-O3> ${ARGN} ${options_of_${isa}})
    endif()
  endforeach()
endfunction()

# Reductions and codecs must round alike on all instruction sets, so the compiler may not fuse a product
# with a sum; in kernels of operations it shall.
lockstep_kernels(comm/reduce -ffp-contract=off)
lockstep_kernels(parallel/compression/kernels -ffp-contract=off)
lockstep_kernels(ops/cpu -ffp-contract=fast)

# Where tests under a sanitizer spend more time than optimising takes.
if(LOCKSTEP_SANITIZE)
  set_property(SOURCE ${PROJECT_SOURCE_DIR}/lockstep/ops/cpu/gemm/scalar.cpp
    ${PROJECT_SOURCE_DIR}/lockstep/ops/cpu/gemm/avx2.cpp
    ${PROJECT_SOURCE_DIR}/lockstep/ops/cpu/gemm/avx512.cpp
    ${PROJECT_SOURCE_DIR}/lockstep/ops/cpu/gemm/neon.cpp APPEND PROPERTY COMPILE_OPTIONS -O1)
endif()
