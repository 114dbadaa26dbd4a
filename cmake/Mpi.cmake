# The MPI backend: a module that is loaded only when it is asked for.
target_compile_definitions(lockstep PRIVATE
  LOCKSTEP_MODULE_DIR="${CMAKE_INSTALL_FULL_LIBDIR}/lockstep")

if(LOCKSTEP_MPI)
  set(MPI_CXX_SKIP_MPICXX TRUE)
  find_package(MPI COMPONENTS CXX)
endif()
if(LOCKSTEP_MPI AND MPI_CXX_FOUND)
  file(GLOB mpi_sources CONFIGURE_DEPENDS lockstep/comm/mpi/backend/*.cpp)
  add_library(lockstep_mpi MODULE ${mpi_sources})
  lockstep_unity(lockstep_mpi)
  target_link_libraries(lockstep_mpi PRIVATE lockstep lockstep_flags MPI::MPI_CXX)
  # Its copy of the library stays its own, whatever the program that loads it exports.
  target_link_options(lockstep_mpi PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(lockstep_mpi PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  if(TARGET lockstep_cli)
    add_dependencies(lockstep_cli lockstep_mpi)
  endif()
  install(TARGETS lockstep_mpi LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
else()
  message(STATUS "MPI backend: not built (LOCKSTEP_MPI=${LOCKSTEP_MPI}, MPI found: ${MPI_CXX_FOUND})")
endif()
