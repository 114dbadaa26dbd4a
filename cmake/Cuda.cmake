# The CUDA side, a module: cuda/ in lockstep/tensor, lockstep/ops, lockstep/comm and
# lockstep/parallel/compression, and lockstep/comm/nccl.
# Everything else knows no CUDA, so what is built here also runs where there is no GPU.
set(cuda_problem "")
if(NOT LOCKSTEP_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "LOCKSTEP_CUDA is '${LOCKSTEP_CUDA}'; it can be AUTO, ON or OFF")
elseif(LOCKSTEP_CUDA STREQUAL OFF)
  set(cuda_problem "LOCKSTEP_CUDA=OFF")
elseif(LOCKSTEP_SANITIZE)
  set(cuda_problem "the sanitizers do not know GPUs")
else()
  find_program(LOCKSTEP_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
    PATH_SUFFIXES bin)
  mark_as_advanced(LOCKSTEP_NVCC)
  if(NOT LOCKSTEP_NVCC AND NOT CMAKE_CUDA_COMPILER)
    set(cuda_problem "there is no nvcc, CUDA's compiler")
  endif()
endif()

if(NOT cuda_problem)
  # check_language() looks no further where the compiler is set.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    set(ENV{CUDACXX} ${LOCKSTEP_NVCC})
  endif()
  # Every file names its architectures below.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    find_package(CUDAToolkit 13)
    if(NOT CUDAToolkit_FOUND OR NOT TARGET CUDA::cudart_static OR NOT TARGET CUDA::cublasLt)
      set(cuda_problem "CUDA 13 with cudart and cuBLASLt was not found beside ${LOCKSTEP_NVCC}")
    endif()
  else()
    set(cuda_problem "${LOCKSTEP_NVCC} does not compile")
  endif()
endif()

if(cuda_problem)
  if(LOCKSTEP_CUDA STREQUAL ON AND NOT LOCKSTEP_SANITIZE)
    message(FATAL_ERROR "LOCKSTEP_CUDA=ON, but ${cuda_problem}")
  endif()
  message(STATUS "CUDA module: not built (${cuda_problem})")
  return()
endif()
option(LOCKSTEP_CUDA_QUICK "Compile CUDA kernels for sm_90a alone and hardly optimised, in a fifth of the time" OFF)
if(LOCKSTEP_CUDA_QUICK)
  message(STATUS "CUDA module: built with CUDA ${CUDAToolkit_VERSION} for sm_90a alone, hardly optimised")
else()
  message(STATUS "CUDA module: built with CUDA ${CUDAToolkit_VERSION} for sm_80 and sm_90a, and as PTX for later GPUs")
endif()

if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
# CMake 3.25 and before do not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
file(GLOB_RECURSE kernel_sources CONFIGURE_DEPENDS lockstep/comm/cuda/*.cu lockstep/comm/nccl/*.cu
  lockstep/tensor/cuda/*.cu lockstep/ops/cuda/*.cu lockstep/parallel/compression/cuda/*.cu)
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS lockstep/comm/cuda/*.cpp lockstep/comm/nccl/*.cpp
  lockstep/tensor/cuda/*.cpp lockstep/ops/cuda/*.cpp lockstep/parallel/compression/cuda/*.cpp)

# Kernels have flags of their own: nvcc knows none of the warnings. Files named hopper* use what only
# Hopper has; the others have the other ways.
foreach(source IN LISTS kernel_sources)
  set(architectures -gencode=arch=compute_90a,code=sm_90a)
  if(NOT LOCKSTEP_CUDA_QUICK AND NOT source MATCHES "/hopper[^/]*\\.cu$")
    list(APPEND architectures -gencode=arch=compute_80,code=sm_80
      -gencode=arch=compute_90,code=compute_90)
  endif()
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${architectures})
endforeach()
add_library(lockstep_cuda_kernels OBJECT ${kernel_sources})
if(LOCKSTEP_CUDA_QUICK AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.9)
  target_compile_options(lockstep_cuda_kernels PRIVATE --Ofast-compile=max)
endif()
target_include_directories(lockstep_cuda_kernels PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_options(lockstep_cuda_kernels PRIVATE --expt-relaxed-constexpr
  $<$<CONFIG:Release>:-O3>)
set_target_properties(lockstep_cuda_kernels PROPERTIES CUDA_STANDARD 20
  CUDA_STANDARD_REQUIRED ON CUDA_ARCHITECTURES OFF CUDA_RUNTIME_LIBRARY Static)

lockstep_module(lockstep_cuda ${cuda_sources})
target_sources(lockstep_cuda PRIVATE $<TARGET_OBJECTS:lockstep_cuda_kernels>)
target_link_libraries(lockstep_cuda PRIVATE CUDA::cudart_static CUDA::cublasLt)
target_link_options(lockstep_cuda PRIVATE -Wl,-z,defs)
# Looks for cuBLASLt where it was found, also when installed; LD_LIBRARY_PATH goes first.
set_target_properties(lockstep_cuda PROPERTIES LINKER_LANGUAGE CXX INSTALL_RPATH_USE_LINK_PATH ON)
