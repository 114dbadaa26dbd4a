# The live page: what it consists of becomes text in the library, and its server needs cpp-httplib.
set(page_folder ${CMAKE_CURRENT_SOURCE_DIR}/lockstep/live/page)
set(page_parts ${CMAKE_CURRENT_BINARY_DIR}/live/page_parts.inc)
set(page_text)
foreach(part page.html page.css model.js format.js chart.js memory.js sections.js page.js)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_folder}/${part})
  file(READ ${page_folder}/${part} text)
  if(text MATCHES "\\)page\"")
    message(FATAL_ERROR "${part} has what ends a string here; write it differently")
  endif()
  string(APPEND page_text "{\"${part}\", R\"page(${text})page\"},\n")
endforeach()
set(page_before)
if(EXISTS ${page_parts})
  file(READ ${page_parts} page_before)
endif()
if(NOT page_text STREQUAL page_before)
  file(WRITE ${page_parts} "${page_text}")
endif()

# Compiled by themselves, because of their options.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/lockstep/live/page.cpp PROPERTIES
  COMPILE_OPTIONS -I${CMAKE_CURRENT_BINARY_DIR}/live OBJECT_DEPENDS ${page_parts})
# The library was built with these definitions; they decide on the layout of its classes.
set_source_files_properties(${CMAKE_CURRENT_SOURCE_DIR}/lockstep/live/server.cpp PROPERTIES
  COMPILE_OPTIONS "${HTTPLIB_CFLAGS_OTHER}" INCLUDE_DIRECTORIES "${HTTPLIB_INCLUDE_DIRS}")
