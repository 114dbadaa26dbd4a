# Installs a build to a fresh place, builds a consumer against what is there, and runs it.
#   cmake -D BUILD=dir -D CONSUMER=dir -D WORK=dir -D GENERATOR=name -D FLAGS=... -P install_test.cmake
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
set(prefix ${WORK}/prefix)

function(expect_success)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

expect_success(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
file(GLOB_RECURSE headers RELATIVE ${prefix}/include ${prefix}/include/*.h)
list(FILTER headers INCLUDE REGEX "/(cli|backend|cuda)/")
if(headers)
  message(FATAL_ERROR "installed, though nobody outside can use them: ${headers}")
endif()
expect_success(${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/build -G ${GENERATOR}
  -D CMAKE_PREFIX_PATH=${prefix} -D CMAKE_CXX_FLAGS=${FLAGS})
expect_success(${CMAKE_COMMAND} --build ${WORK}/build)
expect_success(${CMAKE_COMMAND} -E env LOCKSTEP_LOG=info LOCKSTEP_COMM_TIMEOUT=7s
  ${WORK}/build/consumer)
if(NOT output MATCHES "the backend is native.*timeout 7 s")
  message(FATAL_ERROR "the consumer said:\n${output}")
endif()
expect_success(${prefix}/bin/lockstep --version)
file(REMOVE_RECURSE ${WORK})
