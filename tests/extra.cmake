# Tests that are not one GoogleTest executable.
if(LOCKSTEP_SANITIZE)
  set(consumer_flags -fsanitize=${LOCKSTEP_SANITIZE})
endif()
add_test(NAME Install.AConsumerBuildsAgainstTheInstalledPackage
  COMMAND ${CMAKE_COMMAND} -D BUILD=${PROJECT_BINARY_DIR}
    -D CONSUMER=${CMAKE_CURRENT_SOURCE_DIR}/install/consumer
    -D WORK=${CMAKE_CURRENT_BINARY_DIR}/install -D GENERATOR=${CMAKE_GENERATOR}
    "-D FLAGS=${consumer_flags}" -P ${CMAKE_CURRENT_SOURCE_DIR}/install/install_test.cmake)
set_tests_properties(Install.AConsumerBuildsAgainstTheInstalledPackage
  PROPERTIES LABELS proc TIMEOUT 600 RUN_SERIAL ON)

# Sources that must be refused, with a message that says what is allowed.
add_test(NAME CompileFail.AnAllReduceOfStringsListsTheElementTypes
  COMMAND ${CMAKE_CXX_COMPILER} -std=c++20 -fsyntax-only -I ${PROJECT_SOURCE_DIR}
    ${CMAKE_CURRENT_SOURCE_DIR}/comm/compile_fail/all_reduce_of_strings.cpp)
set_tests_properties(CompileFail.AnAllReduceOfStringsListsTheElementTypes PROPERTIES LABELS unit
  TIMEOUT 120 PASS_REGULAR_EXPRESSION "deleted.*float, double, Half")

if(TARGET example_all_reduce)
  add_test(NAME Examples.FourRanksSumAVector
    COMMAND lockstep_cli launch -n 4 -- $<TARGET_FILE:example_all_reduce>)
  set_tests_properties(Examples.FourRanksSumAVector PROPERTIES LABELS proc TIMEOUT 120
    RUN_SERIAL ON)
endif()
if(TARGET example_custom_block)
  add_test(NAME Examples.ABlockOfOnesOwnLearns COMMAND example_custom_block)
  set_tests_properties(Examples.ABlockOfOnesOwnLearns PROPERTIES LABELS proc TIMEOUT 120)
endif()
if(TARGET example_custom_model)
  add_test(NAME Examples.AModelOfOnesOwnLearnsOnTwoRanks
    COMMAND sh -c "rm -rf custom_model_run && exec $<TARGET_FILE:lockstep_cli> launch -n 2 -- \
$<TARGET_FILE:example_custom_model> data.text=${PROJECT_SOURCE_DIR}/examples/demo.txt train.steps=20 \
train.global_batch_size=8 train.seq_len=32 run.dir=custom_model_run")
  set_tests_properties(Examples.AModelOfOnesOwnLearnsOnTwoRanks PROPERTIES LABELS proc TIMEOUT 120)
endif()
# Faults in whole jobs: a few here, an hour of them by ./dev chaos.
add_library(faulty_system MODULE chaos/faulty_system.cpp)
target_link_libraries(faulty_system PRIVATE ${CMAKE_DL_LIBS} lockstep_flags)
add_executable(chaos chaos/chaos.cpp chaos/faults.cpp chaos/job.cpp)
target_link_libraries(chaos PRIVATE lockstep_test_support lockstep lockstep_flags CLI11::CLI11
  GTest::gtest)
target_compile_options(chaos PRIVATE ${test_optimisation})
add_dependencies(chaos faulty_system lockstep_cli)
if(NOT LOCKSTEP_SANITIZE)  # their libraries must be loaded before the one that fails
  add_test(NAME Chaos.FindsNothingWrongInAFewTrials COMMAND chaos --trials 10)
  set_tests_properties(Chaos.FindsNothingWrongInAFewTrials PROPERTIES LABELS proc TIMEOUT 600
    RUN_SERIAL ON)
endif()
include(${CMAKE_CURRENT_SOURCE_DIR}/fuzz/fuzz.cmake)
