# A build from nothing spends most of its time reading the same headers and instantiating the same
# templates; with CMAKE_UNITY_BUILD the files of a folder are compiled as one. The debug preset does
# without, so that every file has to include what it uses. A file with options of its own (another
# instruction set) is always compiled by itself.
function(lockstep_unity target)
  if(NOT CMAKE_UNITY_BUILD)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  # To the compiler a source that is part of another looks like a header.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    get_filename_component(folder ${source} DIRECTORY)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
    string(REPLACE "/" "_" folder ${folder})
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${folder})
  endforeach()
endfunction()
