# A module is a shared library that is loaded only when it is asked for (lockstep/base/module.h), for
# what needs a foreign library.
target_compile_definitions(lockstep PRIVATE
  LOCKSTEP_MODULE_DIR="${CMAKE_INSTALL_FULL_LIBDIR}/lockstep")

function(lockstep_module target)
  add_library(${target} MODULE ${ARGN})
  lockstep_unity(${target})
  target_link_libraries(${target} PRIVATE lockstep lockstep_flags)
  # Its copy of the library stays its own, whatever the program that loads it exports.
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
  if(TARGET lockstep_cli)
    add_dependencies(lockstep_cli ${target})
  endif()
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
endfunction()
