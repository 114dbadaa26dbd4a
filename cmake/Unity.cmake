# A build from nothing spends most of its time reading the same headers and instantiating the same
# templates; with CMAKE_UNITY_BUILD many files are compiled as one: those of a layer, of a folder of a
# large layer, or all of an executable's tests. The debug preset does
# without, so that every file has to include what it uses. A file with options of its own (another
# instruction set) is always compiled by itself.
#
# CMake's own unity files name their parts by absolute paths, which also stand in every EXPECT then:
# no two clones could share what ccache keeps. Ours name them as any include does.
set(unity_build ${CMAKE_UNITY_BUILD})
set(CMAKE_UNITY_BUILD OFF)

function(lockstep_unity target)
  if(NOT unity_build)
    return()
  endif()
  # To the compiler a source that is part of another looks like a header.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  get_target_property(sources ${target} SOURCES)
  set(compiled)
  set(folders)
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      list(APPEND compiled ${source})
      continue()
    endif()
    file(RELATIVE_PATH source ${PROJECT_SOURCE_DIR} ${source})
    if(source MATCHES "^lockstep/(comm|ops|parallel|bench)/[^/]+/")
      set(folder ${CMAKE_MATCH_0})
    elseif(source MATCHES "^(lockstep|tests)/[^/]+/")
      set(folder ${CMAKE_MATCH_0})
    else()
      get_filename_component(folder ${source} DIRECTORY)
    endif()
    string(REPLACE "/" "_" folder ${folder})
    list(APPEND folders ${folder})
    string(APPEND includes_of_${folder} "#include \"${source}\"\n")
  endforeach()
  list(REMOVE_DUPLICATES folders)
  foreach(folder IN LISTS folders)
    set(unity ${PROJECT_BINARY_DIR}/unity/${target}/${folder}.cpp)
    file(CONFIGURE OUTPUT ${unity} CONTENT "${includes_of_${folder}}" @ONLY)
    list(APPEND compiled ${unity})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${compiled}")
endfunction()
